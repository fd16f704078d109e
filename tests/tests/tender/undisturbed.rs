//! No call is woken for nothing: neither by new names that it has not asked for, nor by deadlines that it would look
//! after in time anyway.
//!
//! Why: a wake-up is a look, of half a millisecond. With a name for each tenant and three hundred workers the queue would
//! be busy with itself. Seen in the number of times that a backend has gone to sleep, which the system counts.

#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use taskq_tests::{Db, until};

use crate::sleeper::{Sleeper, WORK, times_asleep};

/// Lets a call sleep while something happens to tasks of other actions; how often it went back to sleep.
fn disturbed(before: &str, event: &str) -> [u64; 2] {
    let db = Db::new();
    WORK.map(|way| {
        let (mut session, mut watcher) = (db.connect(), db.connect());
        // Names that are there already, and plans.
        session.run("SELECT taskq.insert_task(NULL, 'y'); SELECT taskq.own_tasks('v', 1, '{y}', '1 hour')");
        session.run(before);
        let sleeper = Sleeper::start(&db, &mut watcher, way);
        // Falling asleep counts as well.
        std::thread::sleep(Duration::from_millis(200));
        let before = times_asleep(sleeper.pid());
        session.run(event);
        let times = times_asleep(sleeper.pid()) - before;
        let inserted = Instant::now();
        session.run("SELECT taskq.insert_task(NULL, 'x')");
        drop(sleeper.woken_soon_after(inserted, "an insert after it all"));
        db.clear();
        times
    })
}

const TIMES: u64 = 100;

#[test]
fn a_new_name_wakes_no_call_that_did_not_ask_for_it() {
    let times = disturbed(
        "",
        "DO $$ BEGIN FOR n IN 1..100 LOOP PERFORM taskq.insert_task(NULL, 'new-' || clock_timestamp()); COMMIT; END LOOP; END $$",
    );
    assert!(times.iter().all(|n| *n <= 2), "{times:?} wake-ups of {TIMES}");
}

#[test]
fn a_deadline_that_is_far_away_wakes_no_call() {
    let times = disturbed(
        "SELECT taskq.insert_task(NULL, 'y') FROM generate_series(1, 100)",
        "DO $$ BEGIN FOR n IN 1..100 LOOP PERFORM taskq.own_tasks('v', 1, '{y}', '1 hour'); COMMIT; END LOOP; END $$",
    );
    assert!(times.iter().all(|n| *n <= 2), "{times:?} wake-ups of {TIMES}");
}

#[test]
fn a_task_that_is_due_much_later_wakes_no_call() {
    let times = disturbed(
        "",
        "DO $$ BEGIN FOR n IN 1..100 LOOP PERFORM taskq.insert_task(NULL, 'x', delay => '1 hour'); COMMIT; END LOOP; END $$",
    );
    assert!(times.iter().all(|n| *n <= 2), "{times:?} wake-ups of {TIMES}");
}

/// A call that knows of a near deadline, and looks again soon, need not hear of the next ones.
#[test]
fn near_deadlines_in_quick_succession_wake_one_sleeper_now_and_then() {
    let (db, [mut session, mut watcher]) = Db::connected();
    session.run("SELECT taskq.insert_task(NULL, 'y') FROM generate_series(1, 200)");
    let mut caller = db.connect();
    caller.run("SET taskq.shortest_sleep = '100ms'");
    let sleeper = Sleeper::start_in(caller, &mut watcher, WORK[0]);
    let before = times_asleep(sleeper.pid());
    session.run(
        "DO $$ BEGIN FOR n IN 1..200 LOOP PERFORM taskq.own_tasks('v', 1, '{y}', '9 seconds'); COMMIT; END LOOP; END $$",
    );
    let times = times_asleep(sleeper.pid()) - before;
    assert!(times <= 60, "{times} wake-ups by 200 grants");
    let inserted = Instant::now();
    session.run("SELECT taskq.insert_task('a', 'x')");
    drop(sleeper.woken_soon_after(inserted, "an insert after it all"));
}

/// The other side: a call that is not woken looks in time all the same. (Where transactions can be prepared, as here,
/// every sleeper looks after five seconds at the latest.)
#[test]
fn a_deadline_for_which_no_call_was_woken_is_looked_after_in_time() {
    let (db, [mut session, mut watcher]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'z')");
    // An abort at the deadline is what the sleeper sees to, whose actions are others.
    session.run("SELECT taskq.set_action('z', on_timeout => 'abort')");
    let sleeper = Sleeper::start(&db, &mut watcher, WORK[1]);
    let before = times_asleep(sleeper.pid());
    session.run("SELECT taskq.own_tasks('v', 1, '{z}', '6 seconds')");
    assert!(times_asleep(sleeper.pid()) - before <= 1, "it was woken");
    let granted = Instant::now();
    until("the deadline is looked after", || (session.state("a") == "aborted").then_some(()));
    let late = granted.elapsed().saturating_sub(Duration::from_secs(6));
    assert!(late < Duration::from_secs(1), "the deadline was looked after {late:?} late");
    let inserted = Instant::now();
    session.run("SELECT taskq.insert_task('b', 'x')");
    drop(sleeper.woken_soon_after(inserted, "an insert after it all"));
}

/// On wrong code the two wake each other, thousands of times a second: what a look has locked to try a run is free again when it is
/// undone, and that is news for the other.
#[test]
fn two_do_not_wake_each_other_for_a_schedule_whose_last_run_may_not_run() {
    for overlap in ["skip", "queue", "replace"] {
        let (db, [mut session]) = Db::connected();
        session.run(&format!(
            "SELECT taskq.schedule('s', '* * * * * *', '{{\"action\": \"x\", \"group_id\": \"g\"}}', overlap => '{overlap}');
             SELECT taskq.run_schedule('s');
             SELECT taskq.pause_group('g')"
        ));
        let calls = [(); 2].map(|()| {
            db.connect().background(|s| s.own_with("w", 1, &["x"], "wait => '6 seconds'").unwrap().len())
        });
        calls.iter().for_each(|call| session.until_asleep(call.pid()));
        let asleep = || calls.iter().map(|call| times_asleep(call.pid())).sum::<u64>();
        let before = asleep();
        std::thread::sleep(Duration::from_secs(3));
        let times = asleep() - before;
        assert!(times < 200, "{overlap}: they have gone to sleep {times} times in three seconds");
        for call in calls {
            assert_eq!(call.join().1, 0, "{overlap}");
        }
    }
}

/// Why: each made the task ready, moved it out of its way, undid that, and woke the other for what was there again.
#[test]
fn two_do_not_wake_each_other_for_a_task_that_is_due_and_may_not_run() {
    let held_back = [
        ("group_id", "SELECT taskq.pause_group('k')"),
        ("workgroup", "SELECT taskq.delay_workgroup('k', '1 hour')"),
        ("merge_key", "SELECT taskq.own_tasks('v', 1, '{x}', '1 hour')"),
    ];
    for (what, before) in held_back {
        let (db, [mut session]) = Db::connected();
        session.run(&format!(
            "SELECT taskq.insert_tasks('[{{\"id\": \"first\", \"action\": \"x\", \"{what}\": \"k\"}}]')"
        ));
        session.run(before);
        if what != "merge_key" {
            session.run("SELECT taskq.cancel_tasks('{first}')");
        }
        session.run(&format!(
            "SELECT taskq.insert_tasks('[{{\"id\": \"second\", \"action\": \"x\", \"{what}\": \"k\", \"delay\": \"1 second\"}}]')"
        ));
        let calls = [(); 2].map(|()| {
            db.connect().background(|s| s.own_with("w", 1, &["x"], "wait => '6 seconds'").unwrap().len())
        });
        calls.iter().for_each(|call| session.until_asleep(call.pid()));
        std::thread::sleep(Duration::from_millis(1500));
        let asleep = || calls.iter().map(|call| times_asleep(call.pid())).sum::<u64>();
        let before = asleep();
        std::thread::sleep(Duration::from_secs(3));
        let times = asleep() - before;
        assert!(times < 200, "{what}: they have gone to sleep {times} times in three seconds");
        for call in calls {
            assert_eq!(call.join().1, 0, "{what}");
        }
    }
}
