//! COMMIT PREPARED runs no code of the extension, so it wakes no call; the slow look finds what it brought.

use std::time::{Duration, Instant};

use taskq_tests::{Cluster, Session};

use crate::sleeper::{END, WORK, Way};

/// The slow look comes every 5 seconds; some time on top for a machine that is busy.
const SLOW: Duration = Duration::from_secs(7);

/// How long after COMMIT PREPARED the call ends.
fn latency(cluster: &Cluster, session: &mut Session, way: Way, statement: &str) -> Duration {
    session.run(&format!("BEGIN; {statement}; PREPARE TRANSACTION 'waiting'"));
    let call = cluster.connect().background(move |session| {
        session.simple_query(way.call).unwrap();
        Instant::now()
    });
    session.until_asleep(call.pid());
    let start = Instant::now();
    session.run("COMMIT PREPARED 'waiting'");
    call.join().1 - start
}

#[test]
fn what_a_prepared_transaction_brings_is_found_by_the_slow_look() {
    let cluster =
        Cluster::start(env!("CARGO_TARGET_TMPDIR"), "waiting-prepared", &["max_prepared_transactions=5"]);
    let mut session = cluster.connect();
    for way in WORK {
        let after = latency(&cluster, &mut session, way, "SELECT taskq.insert_task(NULL, 'x')");
        assert!(after < SLOW, "{}: {after:?}", way.name);
        session.run("SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks");
    }
    for way in END {
        session.run("SELECT taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"y\"}]')");
        let after = latency(&cluster, &mut session, way, "SELECT taskq.cancel_tasks('{a}')");
        assert!(after < SLOW, "{}: {after:?}", way.name);
    }
    assert_eq!(session.broken(), Vec::<String>::new());
}

#[test]
fn a_prepared_transaction_that_is_rolled_back_brings_nothing() {
    let cluster = Cluster::start(
        env!("CARGO_TARGET_TMPDIR"),
        "waiting-prepared-rollback",
        &["max_prepared_transactions=5"],
    );
    let mut session = cluster.connect();
    session.run("BEGIN; SELECT taskq.insert_task('a', 'x'); PREPARE TRANSACTION 'never'");
    session.run("ROLLBACK PREPARED 'never'");
    assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
    // The backend that prepared it wakes no call for it later on.
    session.run("BEGIN; SELECT taskq.insert_task('b', 'x'); COMMIT");
    assert_eq!(session.own_one("x").task_id, "b");
}
