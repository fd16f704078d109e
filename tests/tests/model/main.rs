//! The queue against a small model of the contract, over random sequences of operations.
//!
//! After each operation the answer or the error code, the whole of `taskq.tasks`, and `taskq.check()` are compared.
//! Time is the session's own (`taskq.now`), so that leases and delays run out without waiting. The calls go over
//! several connections in turn, so that what a backend remembers of earlier calls is tried as well. A failure prints
//! the shortest sequence that still fails.

use std::cell::RefCell;
use std::env;

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use taskq_tests::Db;
use taskq_tests::ops::{Pair, operations};

/// Runs this many sequences of up to `length` operations over this many connections; `TASKQ_TEST_SOAK` times as many
/// if that is set.
fn compare(cases: u32, length: usize, connections: usize) {
    let soak =
        env::var("TASKQ_TEST_SOAK").map_or(1, |times| times.parse().expect("TASKQ_TEST_SOAK is a number"));
    let cases = cases * soak;
    let db = Db::new();
    let sessions = RefCell::new(Some((0..connections).map(|_| db.connect()).collect::<Vec<_>>()));
    let config = Config { cases, max_shrink_iters: 3000, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&operations(length), |ops| {
        let taken = sessions.borrow_mut().take();
        let mut pair = Pair::new(taken.unwrap_or_else(|| (0..connections).map(|_| db.connect()).collect()));
        for (step, op) in ops.iter().enumerate() {
            pair.step(op)
                .map_err(|wrong| TestCaseError::fail(format!("operation {step}, {op:?}: {wrong}")))?;
        }
        *sessions.borrow_mut() = Some(pair.into_sessions());
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
#[ignore = "long"]
fn short_sequences_over_one_connection() {
    compare(120, 12, 1);
}

#[test]
fn short_sequences_over_three_connections() {
    compare(120, 12, 3);
}

#[test]
#[ignore = "long"]
fn long_sequences_over_one_connection() {
    compare(24, 90, 1);
}

#[test]
#[ignore = "long"]
fn long_sequences_over_three_connections() {
    compare(24, 90, 3);
}
