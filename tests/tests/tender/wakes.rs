//! What becomes due wakes the waiting calls that have a use for it, whichever session or process sees to it.
//!
//! Why: of a deadline only the waiting call knew that fell asleep last, or none if one looked soon anyway. That call
//! had no use for it, and the one that had slept on, for 20 seconds.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Db, Session};

use crate::sleeper::{Sleeper, WORK};

/// A worker has this task for long.
fn held(db: &Db, action: &str) -> (Session, String) {
    let mut dead = db.connect();
    let grants = dead.own_with("dead", 1, &[action], "lease => '1 hour'").unwrap();
    assert_eq!(grants.len(), 1);
    (dead, grants[0].token.to_string())
}

/// There have been tasks of x: else its sleepers hear of the first one by another way.
fn with_action_x(session: &mut Session) {
    session.run("SELECT taskq.insert_task('before', 'x'); SELECT taskq.complete_task('before')");
}

fn extend(task_id: &str, token: &str, by: &str) -> String {
    format!("SELECT taskq.extend_tasks_ownership('dead', '{{{task_id}}}', '{{{token}}}', '{by}')")
}

/// A call sleeps for tasks of x, and others, which fall asleep later, for tasks of w. Then the deadline of the worker's
/// task is to pass in a second; the first comes back promptly.
fn wakes_the_call_that_has_a_use(db: &Db, session: &mut Session, task_id: &str, token: &str) {
    let sleeper = Sleeper::start(db, session, WORK[0]);
    let others = [(); 2].map(|()| {
        db.connect().background(|s| s.own_with("v", 1, &["w"], "wait => '7 seconds'").unwrap().len())
    });
    others.iter().for_each(|call| session.until_asleep(call.pid()));
    let since = Instant::now();
    session.run(&extend(task_id, token, "1 second"));
    drop(sleeper.woken_soon_after(since, "a deadline of which the others have no use"));
    others.into_iter().for_each(|call| assert_eq!(call.join().1, 0));
    assert_eq!(session.broken(), Vec::<String>::new());
}

#[test]
fn a_waiting_call_is_woken_by_the_deadline_of_a_task_that_it_wants() {
    let (db, [mut session]) = Db::with_tasks(json!([{"id": "mine", "action": "x"}]));
    let (_dead, token) = held(&db, "x");
    wakes_the_call_that_has_a_use(&db, &mut session, "mine", &token);
}

/// And what begins at once by the end of a try, which is of no use to the others.
#[test]
fn a_waiting_call_is_woken_by_the_deadline_of_what_its_task_waits_for() {
    let (db, [mut session]) = Db::with_tasks(json!([
        {"id": "theirs", "action": "y", "max_tries": 1},
        {"id": "mark", "action": "z", "spontaneous": true, "depends_on": [{"id": "theirs", "condition": "settled"}]},
        {"id": "mine", "action": "x", "depends_on": ["mark"]},
    ]));
    let (_dead, token) = held(&db, "y");
    wakes_the_call_that_has_a_use(&db, &mut session, "theirs", &token);
}

#[test]
fn the_next_run_of_a_schedule() {
    let (db, [mut session]) = Db::connected();
    // Whether the action has a number yet or not.
    for known in [false, true] {
        if known {
            session.run("SELECT taskq.insert_task('before', 'x'); SELECT taskq.complete_task('before')");
        }
        // Else it would be granted the one before, too.
        session.run(
            "SELECT taskq.cancel_tasks((SELECT COALESCE(array_agg(id), '{}') FROM taskq.tasks WHERE state <> 'completed'))",
        );
        let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
        let other =
            db.connect().background(|s| s.own_with("v", 1, &["w"], "wait => '7 seconds'").unwrap().len());
        session.until_asleep(other.pid());
        let since = Instant::now();
        session.run("SELECT taskq.schedule('s', '* * * * * *', '{\"action\": \"x\"}')");
        drop(sleeper.woken_soon_after(since, "a schedule of which the other has no use"));
        session.run("SELECT taskq.unschedule('s')");
        drop(other.join());
        assert_eq!(session.broken(), Vec::<String>::new());
    }
}

/// A try of no use to those that sleep may get one: by a task that is to wait for it.
#[test]
fn a_task_that_comes_to_wait_for_an_overdue_try_wakes_a_waiting_call() {
    for linked in [false, true] {
        let (db, [mut session]) = Db::with_tasks(json!([{"id": "theirs", "action": "y", "max_tries": 1}]));
        let (_dead, token) = held(&db, "y");
        if linked {
            session.insert(json!([{"id": "gate", "action": "z"}, {"id": "mine", "action": "x", "depends_on": ["gate"]}])).unwrap();
        }
        session.run(&extend("theirs", &token, "0.1 seconds"));
        std::thread::sleep(Duration::from_millis(300));
        let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
        let since = Instant::now();
        if linked {
            session.run("SELECT taskq.add_dependencies('{theirs}', '{mine}', 'settled'); SELECT taskq.complete_task('gate')");
        } else {
            session
                .insert(json!([{"id": "mine", "action": "x", "depends_on": [{"id": "theirs", "condition": "settled"}]}]))
                .unwrap();
        }
        drop(sleeper.woken_soon_after(since, "a task that waits for a try whose deadline has passed"));
    }
}

/// And what was linked to a try in time is committed after its deadline.
#[test]
fn a_dependency_committed_after_the_deadline_wakes_a_waiting_call() {
    let (db, [mut session, mut open]) =
        Db::with_tasks(json!([{"id": "theirs", "action": "y", "max_tries": 1}]));
    let (_dead, token) = held(&db, "y");
    session.run(&extend("theirs", &token, "1 second"));
    open.run("BEGIN");
    open.insert(
        json!([{"id": "mine", "action": "x", "depends_on": [{"id": "theirs", "condition": "settled"}]}]),
    )
    .unwrap();
    let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
    // The deadline passes, and is of no use yet.
    std::thread::sleep(Duration::from_millis(1500));
    let since = Instant::now();
    open.run("COMMIT");
    drop(sleeper.woken_soon_after(since, "a task that has come to wait for a try that is over"));
}

/// The deadline had passed when the grant was committed, and others were woken for later ones before.
#[test]
fn a_grant_committed_after_its_deadline_wakes_a_waiting_call() {
    let (db, [mut session, mut open]) =
        Db::with_tasks(json!([{"id": "mine", "action": "x"}, {"id": "theirs", "action": "y"}]));
    let (_dead, token) = held(&db, "y");
    open.run("BEGIN");
    assert_eq!(open.own_with("dead", 1, &["x"], "lease => '0.2 seconds'").unwrap().len(), 1);
    let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
    session.run(&extend("theirs", &token, "0.7 seconds"));
    let other = db.connect().background(|s| s.own_with("v", 1, &["w"], "wait => '7 seconds'").unwrap().len());
    session.until_asleep(other.pid());
    std::thread::sleep(Duration::from_secs(1));
    let since = Instant::now();
    open.run("COMMIT");
    drop(sleeper.woken_soon_after(since, "a deadline that had passed by the commit"));
    assert_eq!(other.join().1, 0);
}

/// Or it comes to wait for it by a retry.
#[test]
fn a_retry_that_waits_for_an_overdue_try_wakes_a_waiting_call() {
    for call in ["retry_tasks('{mine}')", "reset_group('g')"] {
        let (db, [mut session]) = Db::with_tasks(json!([
            {"id": "theirs", "action": "y", "max_tries": 1},
            {"id": "mine", "action": "x", "group_id": "g", "depends_on": [{"id": "theirs", "condition": "settled"}]},
        ]));
        session.cancel(&["mine"]).unwrap();
        let (_dead, token) = held(&db, "y");
        session.run(&extend("theirs", &token, "0.1 seconds"));
        std::thread::sleep(Duration::from_millis(300));
        let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
        let since = Instant::now();
        session.run(&format!("SELECT taskq.{call}"));
        drop(sleeper.woken_soon_after(since, call));
    }
}

/// Why: what had become due while it was held back was not to be seen for the call that ended that.
#[test]
fn what_became_due_while_held_back_wakes_a_waiting_call_afterwards() {
    let all = [
        ("group_id", "pause_group('k')", "resume_group('k')"),
        ("workgroup", "delay_workgroup('k', '1 hour')", "delay_workgroup('k', '0')"),
        ("group_id", "set_group('k', max_concurrency => 0)", "set_group('k', clear => '{max_concurrency}')"),
    ];
    for (what, hold, let_go) in all {
        for overdue in [false, true] {
            let (db, [mut session]) = Db::connected();
            let delay = if overdue { "0 seconds" } else { "1 second" };
            session.insert(json!([{"id": "mine", "action": "x", what: "k", "delay": delay}])).unwrap();
            if overdue {
                let had = db.connect().own_with("dead", 1, &["x"], "lease => '1 second'").unwrap();
                assert_eq!(had.len(), 1);
            }
            session.run(&format!("SELECT taskq.{hold}"));
            let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
            std::thread::sleep(Duration::from_millis(1500));
            let since = Instant::now();
            session.run(&format!("SELECT taskq.{let_go}"));
            drop(sleeper.woken_soon_after(since, let_go));
        }
    }
}

/// Why: it woke for what its transaction had noted before, which no other session could see yet, and forgot it.
#[test]
fn the_commit_of_a_transaction_that_slept_wakes_a_waiting_call() {
    let (db, [mut session]) = Db::connected();
    with_action_x(&mut session);
    session.insert(json!([{"id": "dead", "action": "z"}])).unwrap();
    let (_dead, token) = held(&db, "z");
    session.run(&extend("dead", &token, "0.1 seconds"));
    std::thread::sleep(Duration::from_millis(300));
    let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
    session.run("BEGIN");
    session.insert(json!([{"id": "mine", "action": "x"}])).unwrap();
    assert!(session.own_with("v", 1, &["w"], "wait => '0.5 seconds'").unwrap().is_empty());
    let since = Instant::now();
    session.run("COMMIT");
    drop(sleeper.woken_soon_after(since, "a task of a transaction that has slept since"));
}

/// Why: what only the look that was granted it had made ready did not count as free for others.
#[test]
fn the_rollback_of_a_grant_to_a_call_that_slept_wakes_another() {
    for end in ["ROLLBACK", "ROLLBACK TO s"] {
        let (db, [mut session]) = Db::connected();
        with_action_x(&mut session);
        let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
        let mut last = db.connect();
        last.run("BEGIN; SAVEPOINT s");
        // The call that falls asleep last is woken.
        let last = last.background(|s| s.own_with("v", 1, &["x"], "wait => '5 seconds'").unwrap().len());
        session.until_asleep(last.pid());
        session.run("SELECT taskq.insert_task('mine', 'x', delay => '1 second')");
        let (mut last, had) = last.join();
        assert_eq!(had, 1);
        let since = Instant::now();
        last.run(end);
        drop(sleeper.woken_soon_after(since, end));
    }
}

/// Why: in a transaction block it ended one try, which was not enough, and undid that.
#[test]
fn the_end_of_several_tries_wakes_a_call_in_a_transaction_block() {
    let (db, [mut session]) = Db::connected();
    let theirs = |n: usize| json!({"id": format!("theirs {n}"), "action": "y", "max_tries": 1});
    session.insert(json!((0..4).map(theirs).collect::<Vec<_>>())).unwrap();
    let after: Vec<_> =
        (0..4).map(|n| json!({"id": format!("theirs {n}"), "condition": "settled"})).collect();
    session.insert(json!([{"id": "mine", "action": "x", "depends_on": after}])).unwrap();
    assert_eq!(db.connect().own_with("dead", 4, &["y"], "lease => '1 second'").unwrap().len(), 4);
    let mut block = db.connect();
    block.run("BEGIN");
    let sleeper = Sleeper::start_in(block, &mut session, WORK[0]);
    let mut block = sleeper.woken_by("the deadlines");
    block.run("COMMIT");
}

/// Why: a call remembers for a second how far there was nothing for it, and began behind that when it was woken.
#[test]
fn a_task_that_comes_to_wait_for_one_of_many_overdue_tries_wakes_a_call() {
    let (db, [mut session]) = Db::connected();
    with_action_x(&mut session);
    session.run(
        "SELECT count(*) FROM taskq.insert_many('y', array_fill('b'::text, ARRAY[1500]),
             ids => (SELECT array_agg('y' || i) FROM generate_series(1, 1500) AS i), max_tries => 1)",
    );
    session.run(
        "DO $$ BEGIN FOR i IN 1..100 LOOP
             PERFORM taskq.own_tasks('dead', 15, '{y}', lease => now() + '5 seconds' - clock_timestamp()); END LOOP; END $$",
    );
    let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
    let left: f64 =
        session.one("SELECT extract(epoch FROM max(deadline) - clock_timestamp())::float8 FROM taskq.lease");
    std::thread::sleep(Duration::from_secs_f64(left.max(0.0) + 0.4));
    let since = Instant::now();
    session
        .insert(json!([{"id": "mine", "action": "x", "depends_on": [{"id": "y1", "condition": "settled"}]}]))
        .unwrap();
    drop(sleeper.woken_soon_after(since, "a task that waits for one of them"));
}

/// What rides on a try has no deadline of its own.
#[test]
fn a_task_that_comes_to_wait_for_an_overdue_rider_wakes_a_waiting_call() {
    let (db, [mut session]) = Db::connected();
    with_action_x(&mut session);
    let y = |id: &str| json!({"id": id, "action": "y", "merge_key": "k", "max_tries": 1});
    session.insert(json!([y("leader"), y("rider")])).unwrap();
    let (_dead, token) = held(&db, "y");
    session.run(&extend("leader", &token, "0.1 seconds"));
    std::thread::sleep(Duration::from_millis(300));
    let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
    let since = Instant::now();
    session
        .insert(
            json!([{"id": "mine", "action": "x", "depends_on": [{"id": "rider", "condition": "settled"}]}]),
        )
        .unwrap();
    drop(sleeper.woken_soon_after(since, "a task that waits for a rider"));
}

/// The process that inserts the run is called by a call whose action it is not, and that is in a transaction block.
#[test]
fn a_schedule_wakes_a_call_beside_another_in_a_transaction_block() {
    let (db, [mut session]) = Db::connected();
    with_action_x(&mut session);
    let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
    let mut block = db.connect();
    block.run("BEGIN");
    let block = block.background(|s| s.own_with("v", 1, &["w"], "wait => '7 seconds'").unwrap().len());
    session.until_asleep(block.pid());
    let since = Instant::now();
    session.run("SELECT taskq.schedule('s', '* * * * * *', '{\"action\": \"x\"}')");
    drop(sleeper.woken_soon_after(since, "a schedule beside a call in a transaction block"));
    session.run("SELECT taskq.unschedule('s')");
    block.join();
}
