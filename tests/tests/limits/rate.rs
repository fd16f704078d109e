//! `rate_limit` per `rate_period`: a bucket that holds `rate_limit` grants and refills evenly over the period.
//!
//! Why: a window counter lets twice the limit through at its edge, and a bucket that is not part of the transaction loses
//! what was rolled back. On wrong code more (or fewer) tasks than bucket and refill allow come out.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use taskq_tests::{Db, Progress};

use crate::{at, call, owned, tasks};

#[test]
fn a_full_bucket_lets_its_size_go_at_once_and_then_one_at_each_refill() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    call(&mut session, "set_action('x', rate_limit => 6, rate_period => '1 minute')");
    session.insert(tasks("x", 200)).unwrap();
    assert_eq!(owned(&mut session, 50, &["x"]).len(), 6);
    for (second, expected) in
        [(0.0, 0), (9.9, 0), (10.0, 1), (10.1, 0), (19.9, 0), (40.0, 3), (45.0, 0), (3600.0, 6)]
    {
        at(&mut session, second);
        assert_eq!(owned(&mut session, 50, &["x"]).len(), expected, "at {second} s");
    }
}

#[test]
fn no_window_sees_more_than_bucket_and_refill() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    call(&mut session, "set_action('x', rate_limit => 5, rate_period => '10 seconds')");
    session.insert(tasks("x", 2000)).unwrap();
    let mut grants: Vec<f64> = Vec::new();
    let mut second = 0.0;
    for step in 0..150_u32 {
        second += f64::from(step * 7919 % 37) / 10.0;
        at(&mut session, second);
        let count = owned(&mut session, (step % 4) as i32 + 1, &["x"]).len();
        grants.extend(std::iter::repeat_n(second, count));
    }
    for (i, from) in grants.iter().enumerate() {
        for (n, to) in grants[i..].iter().enumerate() {
            let allowed = 5.0 + (to - from) * 0.5 + 1e-6;
            assert!((n + 1) as f64 <= allowed, "{} grants from {from} s to {to} s", n + 1);
        }
    }
    assert!(grants.len() as f64 >= second * 0.5 * 0.8, "{} grants in {second} s", grants.len());
}

#[test]
fn a_rolled_back_grant_gives_its_part_of_the_bucket_back() {
    let (_db, [mut a, mut b]) = Db::connected();
    call(&mut a, "set_action('x', rate_limit => 3, rate_period => '1 day')");
    a.insert(tasks("x", 10)).unwrap();
    a.run("BEGIN");
    assert_eq!(owned(&mut a, 2, &["x"]).len(), 2);
    assert!(owned(&mut b, 9, &["x"]).len() <= 1, "the open grant counts");
    a.run("ROLLBACK");
    let mut total = owned(&mut b, 9, &["x"]).len() + owned(&mut a, 9, &["x"]).len();
    total += b.one::<i64>("SELECT count(*) FROM taskq.actors WHERE action = 'x'") as usize - total;
    assert_eq!(total, 3);
}

#[test]
fn what_comes_back_counts_again_because_a_rate_counts_grants() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    call(&mut session, "set_action('x', rate_limit => 2, rate_period => '1 minute')");
    session.insert(tasks("x", 1)).unwrap();
    for _ in 0..2 {
        let grant = session.own_one("x");
        session.give("x1", grant.token, "pending").unwrap();
    }
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    at(&mut session, 30.0);
    assert_eq!(owned(&mut session, 1, &["x"]), ["x1"]);
}

#[test]
fn a_rate_and_a_concurrency_limit_hold_together() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    call(&mut session, "set_action('x', rate_limit => 3, rate_period => '1 minute', max_concurrency => 2)");
    session.insert(tasks("x", 10)).unwrap();
    let held = session.own("w", 9, &["x"]).unwrap();
    assert_eq!(held.len(), 2);
    session.complete(&held[0]);
    assert_eq!(owned(&mut session, 9, &["x"]).len(), 1, "the third of the bucket");
    session.complete(&held[1]);
    assert_eq!(owned(&mut session, 9, &["x"]).len(), 0, "the bucket is empty");
    at(&mut session, 20.0);
    assert_eq!(owned(&mut session, 9, &["x"]).len(), 1);
    at(&mut session, 600.0);
    assert_eq!(owned(&mut session, 9, &["x"]).len(), 0, "both places are held");
}

#[test]
fn a_cleared_rate_is_none_and_setting_one_anew_keeps_what_was_used() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    call(&mut session, "set_action('x', rate_limit => 2, rate_period => '1 minute')");
    session.insert(tasks("x", 20)).unwrap();
    assert_eq!(owned(&mut session, 9, &["x"]).len(), 2);
    call(&mut session, "set_action('x', rate_limit => 2)");
    assert_eq!(owned(&mut session, 9, &["x"]).len(), 0, "setting it again fills nothing");
    call(&mut session, "set_action('x', rate_limit => 1, rate_period => '1 hour')");
    assert_eq!(owned(&mut session, 9, &["x"]).len(), 0);
    call(&mut session, "set_action('x', clear => '{rate_limit}')");
    assert_eq!(owned(&mut session, 9, &["x"]).len(), 9);
}

/// What has refilled up to then has refilled at the rate that was set.
#[test]
fn a_new_rate_holds_from_the_moment_it_is_set() {
    let (_db, [mut session]) = Db::connected();
    let few = "set_action('x', rate_limit => 1, rate_period => '1 hour')";
    let many = "set_action('x', rate_limit => 1000, rate_period => '1 hour')";
    at(&mut session, 0.0);
    call(&mut session, few);
    session.insert(tasks("x", 4000)).unwrap();
    assert_eq!(owned(&mut session, 2000, &["x"]).len(), 1);
    at(&mut session, 3540.0);
    assert_eq!(owned(&mut session, 2000, &["x"]).len(), 0);
    call(&mut session, many);
    assert_eq!(owned(&mut session, 2000, &["x"]).len(), 0, "0.98 of a grant has refilled");
    at(&mut session, 3600.0);
    assert_eq!(owned(&mut session, 2000, &["x"]).len(), 17, "0.98 and 16.67");
    at(&mut session, 7200.0);
    call(&mut session, few);
    assert_eq!(owned(&mut session, 2000, &["x"]).len(), 1, "the bucket was full, and is smaller now");
    call(&mut session, "set_action('x', lease => '1 hour')");
    at(&mut session, 10799.0);
    assert_eq!(owned(&mut session, 2000, &["x"]).len(), 0);
    at(&mut session, 10800.0);
    assert_eq!(owned(&mut session, 2000, &["x"]).len(), 1);
}

#[test]
fn a_call_that_began_before_another_grant_does_not_refill_the_bucket_twice() {
    let (_db, [mut session, early, mut watcher]) = Db::with_tasks(tasks("x", 20));
    call(&mut session, "set_action('x', rate_limit => 10, rate_period => '1 hour')");
    let measured = "SELECT measured_at FROM taskq.bucket WHERE name = 'x'";
    // The early call has begun, and is kept from the bucket until the other has granted.
    session.run("BEGIN; LOCK TABLE taskq.bucket IN ACCESS EXCLUSIVE MODE");
    let call = early.background(|session| owned(session, 1, &["x"]).len());
    assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
    assert_eq!(owned(&mut session, 1, &["x"]).len(), 1);
    let before: DateTime<Utc> = session.one(measured);
    session.run("COMMIT");
    assert_eq!(call.join().1, 1);
    let after: DateTime<Utc> = session.one(measured);
    assert!(after >= before, "the bucket went back from {before} to {after}");
    let level: f64 = session.one("SELECT level FROM taskq.bucket WHERE name = 'x'");
    assert!((8.0..9.0).contains(&level), "two of ten are gone: {level}");
}

#[test]
fn four_sessions_stay_below_the_rate_in_real_time() {
    const SIZE: usize = 10;
    let (db, [mut main]) = Db::with_tasks(tasks("x", 1000));
    call(&mut main, "set_action('x', rate_limit => 10, rate_period => '1 second')");
    // For each grant, when its call began and ended: it happened somewhere between the two.
    let calls: Mutex<Vec<(Instant, Instant)>> = Mutex::new(Vec::new());
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut session = db.connect();
                while start.elapsed() < Duration::from_secs(3) {
                    let before = Instant::now();
                    let grants = session.own_with("w", 2, &["x"], "wait => '0.2 seconds'").unwrap();
                    let after = Instant::now();
                    calls.lock().unwrap().extend(grants.iter().map(|_| (before, after)));
                }
            });
        }
    });
    let calls = calls.into_inner().unwrap();
    // What holds: in a window of w seconds there are no more than SIZE + 10 w grants. A grant takes from the bucket at
    // the time that it reads while it holds the bucket's row; these times never go back from one grant to the next, and the
    // level never exceeds SIZE nor grows faster than 10 a second. That time lies within the call, so that whatever calls
    // lie wholly within a window have taken within it: the bound needs no rounding. The grants seen to be inside are
    // those, or fewer. The rest on top is for two clocks that do not run at quite the same speed.
    let mut ends: Vec<Instant> = calls.iter().map(|c| c.1).collect();
    ends.sort();
    for (from, _) in &calls {
        for to in &ends {
            if to <= from {
                continue;
            }
            let inside = calls.iter().filter(|c| c.0 >= *from && c.1 <= *to).count();
            let allowed = SIZE as f64 + to.duration_since(*from).as_secs_f64() * 10.0 + 0.01;
            assert!(inside as f64 <= allowed, "{inside} grants where {allowed} are allowed");
        }
    }
    let least = SIZE + 15;
    assert!(calls.len() >= least, "waiters wake up at each refill: {} grants", calls.len());
}
