//! `own_tasks(wait => ...)`: sleeps until there is something to own, and is woken by the commit that brings it.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Background, Db, Grant, Session};

/// A worker that waits for tasks of action x; asleep when this returns.
fn sleeper(db: &Db, watcher: &mut Session) -> Background<Vec<Grant>> {
    let call =
        db.connect().background(|session| session.own_with("w", 5, &["x"], "wait => '60 seconds'").unwrap());
    watcher.until_asleep(call.pid());
    call
}

fn ids(grants: Vec<Grant>) -> Vec<String> {
    grants.into_iter().map(|grant| grant.task_id).collect()
}

#[test]
fn what_is_there_is_granted_without_sleeping() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    assert_eq!(session.own_with("w", 5, &["x"], "wait => '60 seconds'").unwrap().len(), 1);
}

#[test]
fn an_insert_wakes_the_waiting_call() {
    let db = Db::new();
    let mut session = db.connect();
    let call = sleeper(&db, &mut session);
    session.insert(json!([{"id": "other", "action": "y"}])).unwrap();
    session.until_asleep(call.pid());
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    assert_eq!(ids(call.join().1), ["a"]);
}

#[test]
fn the_wake_up_comes_with_the_commit_and_not_with_a_rollback() {
    let db = Db::new();
    let (mut session, mut watcher) = (db.connect(), db.connect());
    let call = sleeper(&db, &mut watcher);
    session.run("BEGIN");
    session.insert(json!([{"id": "never", "action": "x"}])).unwrap();
    session.run("ROLLBACK");
    session.run("BEGIN");
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    watcher.until_asleep(call.pid());
    session.run("COMMIT");
    assert_eq!(ids(call.join().1), ["a"]);
}

#[test]
fn whatever_makes_a_task_ready_wakes_the_waiting_call() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "parent", "action": "y"}, {"id": "child", "action": "x", "depends_on": ["parent"]},
    ]);
    session.insert(tasks).unwrap();
    let parent = session.own_one("y");
    let call = sleeper(&db, &mut session);
    session.complete(&parent);
    let mut grants = call.join().1;
    let child = grants.pop().unwrap();
    assert_eq!(child.task_id, "child");

    let call = sleeper(&db, &mut session);
    session.give("child", child.token, "pending").unwrap();
    assert_eq!(ids(call.join().1), ["child"]);

    let tasks = json!([
        {"id": "gate", "action": "y"},
        {"id": "next", "action": "x", "depends_on": [{"id": "gate", "condition": "aborted"}]},
    ]);
    session.insert(tasks).unwrap();
    let call = sleeper(&db, &mut session);
    session.cancel(&["gate"]).unwrap();
    assert_eq!(ids(call.join().1), ["next"]);

    session.insert(json!([{"id": "done", "action": "y"}])).unwrap();
    session.perform("y", "completed");
    let tasks = json!([
        {"id": "gate2", "action": "y"}, {"id": "last", "action": "x", "depends_on": ["gate2", "done"]},
    ]);
    session.insert(tasks).unwrap();
    let call = sleeper(&db, &mut session);
    session.delete(&["gate2"]).unwrap();
    assert_eq!(ids(call.join().1), ["last"]);

    session.insert(json!([{"id": "twin", "action": "y", "depends_on": ["last"]}])).unwrap();
    let call = sleeper(&db, &mut session);
    session.replace(json!([{"id": "twin", "action": "x"}])).unwrap();
    assert_eq!(ids(call.join().1), ["twin"]);
}

#[test]
fn a_due_time_and_a_passed_deadline_end_the_sleep_without_any_commit() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "due", "action": "x", "delay": "0.3 seconds"}])).unwrap();
    assert_eq!(
        ids(session.own_with("w", 5, &["x"], "lease => '0.3 seconds', wait => '60 seconds'").unwrap()),
        ["due"]
    );
    let again = session.own_with("w", 5, &["x"], "wait => '60 seconds'").unwrap();
    assert_eq!((again.len(), again[0].num_tries), (1, 2));
}

#[test]
fn a_time_out_gives_no_row_and_takes_about_that_long() {
    let db = Db::new();
    let mut session = db.connect();
    let start = Instant::now();
    assert!(session.own_with("w", 5, &["x"], "wait => '0.3 seconds'").unwrap().is_empty());
    assert!(start.elapsed() >= Duration::from_millis(290));
    assert!(session.own_with("w", 5, &["x"], "wait => '0'").unwrap().is_empty());
    assert!(session.own_with("w", 5, &["x"], "wait => NULL").unwrap().is_empty());
}

#[test]
fn several_sleepers_share_what_comes() {
    let db = Db::new();
    let mut session = db.connect();
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let call = db
                .connect()
                .background(|session| session.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap());
            session.until_asleep(call.pid());
            call
        })
        .collect();
    session.insert((0..4).map(|i| json!({"id": i.to_string(), "action": "x"})).collect()).unwrap();
    let mut got: Vec<String> = calls.into_iter().flat_map(|call| ids(call.join().1)).collect();
    got.sort();
    assert_eq!(got, ["0", "1", "2", "3"]);
}

#[test]
fn cancel_and_terminate_end_the_sleep_and_leave_no_lock() {
    let db = Db::new();
    for (end, expected) in [("pg_cancel_backend", Some("57014")), ("pg_terminate_backend", None)] {
        db.clear();
        let mut session = db.connect();
        let call =
            db.connect().background(|session| session.own_with("w", 5, &["x"], "wait => '60 seconds'"));
        let pid = call.pid();
        session.until_asleep(pid);
        session.run(&format!("SELECT {end}({pid})"));
        let (_connection, answer) = call.join();
        let error = answer.unwrap_err();
        if let Some(code) = expected {
            assert_eq!(taskq_tests::sqlstate(&error), code);
        }
        taskq_tests::until("its locks are gone", || {
            (session.one::<i64>(&format!("SELECT count(*) FROM pg_locks WHERE pid = {pid}")) == 0)
                .then_some(())
        });
        session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        assert_eq!(session.own_one("x").num_tries, 1);
    }
}
