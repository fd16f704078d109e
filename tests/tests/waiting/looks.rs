//! Sleeping calls look again by themselves, first soon and then less and less often.
//!
//! Why: a wake-up can get lost inside the server (Postgres resets a backend's latch where it waits for a lock or for
//! another backend's page), and what a look passes over because others hold it may come free without a change that
//! wakes. A call that sleeps for half a minute after such a look leaves a ready task lying for as long.

use std::time::{Duration, Instant};

use taskq_tests::{Db, Progress};

use crate::sleeper::{Sleeper, WORK};

/// Sleeping calls in this session look by themselves, as they do anywhere but in tests.
const LOOKS: &str = "SET taskq.shortest_sleep = '100ms'";

/// A look that waits for a lock in the middle of its claim, while a task is committed that its snapshot does not show.
/// The wake-up comes, and is swallowed by that wait.
#[test]
fn a_wake_up_that_a_look_has_swallowed_costs_a_moment() {
    let (db, [mut session, mut watcher, mut locker]) = Db::connected();
    // A claim of `stuck` waits until the table of the keys is free, and leaves it then: its key is not.
    session.run("SELECT taskq.insert_task('stuck', 'x', merge_key => 'k')");
    locker.run("BEGIN; SELECT FROM taskq.merge_key FOR UPDATE; SAVEPOINT s; LOCK TABLE taskq.merge_key");
    let waiter = db.connect().background(|session| {
        session.run(LOOKS);
        let grants = session.own_with("w", 1, &["x"], "wait => '100 seconds'").unwrap();
        (grants[0].task_id.clone(), Instant::now())
    });
    assert_eq!(waiter.settle_down(&mut watcher), Progress::Blocked);
    session.run("SELECT taskq.insert_task('a', 'x')");
    locker.run("ROLLBACK TO s");
    let released = Instant::now();
    let (_, (task, taken)) = waiter.join();
    assert_eq!(task, "a");
    assert!(taken - released < Duration::from_secs(1), "taken after {:?}", taken - released);
}

/// A lock that taskq does not know of, on a ready task: nothing wakes when it ends. It is found free after no more than
/// about as long as it was held.
#[test]
fn what_was_locked_during_a_look_is_looked_for_again() {
    let (db, [mut session, mut watcher]) = Db::connected();
    for held in [0, 50, 400, 1500] {
        for way in WORK {
            db.clear();
            session.run("SELECT taskq.insert_task('a', 'x')");
            session.run("BEGIN; SELECT FROM taskq.run FOR UPDATE");
            let mut caller = db.connect();
            caller.run(LOOKS);
            let sleeper = Sleeper::start_in(caller, &mut watcher, way);
            std::thread::sleep(Duration::from_millis(held));
            session.run("COMMIT");
            let freed = Instant::now();
            drop(sleeper.woken_soon_after(freed, "the end of the lock"));
            let late = freed.elapsed();
            assert!(late < Duration::from_millis(600 + held), "{}: {late:?} after {held} ms", way.name);
        }
    }
}

/// A call that is woken reads before it takes, a few entries at first. What it finds free may stand behind many that may not
/// run.
#[test]
fn a_look_goes_on_behind_many_that_may_not_run() {
    let (db, [mut session, mut watcher]) = Db::connected();
    session.run("SELECT taskq.insert_task('held', 'y', group_id => 'g'), taskq.pause_group('g')");
    let caller = db.connect();
    let began = Instant::now();
    let waiter = caller.background(|session| {
        let grants = session.own_with("w", 1, &["x"], "wait => '50 seconds'").unwrap();
        grants.into_iter().map(|grant| grant.task_id).collect::<Vec<_>>()
    });
    watcher.until_asleep(waiter.pid());
    session.run(
        "SELECT count(taskq.insert_task('t' || n, 'x', group_id => CASE WHEN n < 200 THEN 'g' END))
           FROM generate_series(1, 200) AS n",
    );
    assert_eq!(waiter.join().1, ["t200"]);
    assert!(began.elapsed() < Duration::from_secs(45), "it was not found at the end of the wait");
}

/// Looks of an idle call do not add up: most of the time it sleeps.
#[test]
#[cfg(target_os = "linux")]
fn an_idle_call_looks_less_and_less_often() {
    let (db, [mut session, mut watcher]) = Db::connected();
    for way in WORK {
        let mut caller = db.connect();
        caller.run(LOOKS);
        let sleeper = Sleeper::start_in(caller, &mut watcher, way);
        let before = crate::sleeper::times_asleep(sleeper.pid());
        let end = Instant::now() + Duration::from_secs(6);
        while Instant::now() < end {
            // Another session changes something all the time.
            session.run("SELECT pg_current_xact_id(), pg_sleep(0.01)");
        }
        let looks = crate::sleeper::times_asleep(sleeper.pid()) - before;
        assert!((4..=20).contains(&looks), "{}: {looks} looks", way.name);
        let inserted = Instant::now();
        session.run("SELECT taskq.insert_task(NULL, 'x')");
        drop(sleeper.woken_soon_after(inserted, "an insert"));
        session.run("SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks");
    }
}
