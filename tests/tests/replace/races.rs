//! Replacing while others wait for, own or return the old task.

use serde_json::json;
use taskq_tests::{Db, Progress, sqlstate};

const NEW: &str = r#"SELECT taskq.replace_tasks('[{"id": "a", "action": "x", "body": "new"}]')"#;

#[test]
fn a_waiting_caller_sees_the_abort_of_the_old_one() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x", "body": "old"}])).unwrap();
    let call = db.connect().background(|session| session.wait("a", "60 seconds").unwrap().unwrap());
    session.until_asleep(call.pid());
    session.run(NEW);
    let settled = call.join().1;
    assert_eq!((settled.task_id.as_str(), settled.status_code.as_str()), ("a", "aborted"));
    assert_eq!(session.state("a"), "ready");
}

#[test]
fn a_waiting_call_hears_nothing_of_a_replace_that_is_rolled_back() {
    let db = Db::new();
    let (mut session, mut watcher) = (db.connect(), db.connect());
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let call = db.connect().background(|session| session.wait("a", "60 seconds").unwrap().unwrap());
    watcher.until_asleep(call.pid());
    session.run("BEGIN");
    session.run(NEW);
    session.run("ROLLBACK");
    watcher.until_asleep(call.pid());
    session.perform("x", "completed");
    assert_eq!(call.join().1.status_code, "completed");
}

#[test]
fn a_replace_and_a_grant_cannot_both_have_the_old_task() {
    let db = Db::new();
    for replace_first in [false, true] {
        db.clear();
        let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher.insert(json!([{"id": "a", "action": "x", "body": "old"}])).unwrap();
        first.run("BEGIN");
        if replace_first {
            first.run(NEW);
            let call = second.background(|session| session.own("w", 1, &["x"]).unwrap().len());
            assert_eq!(call.join().1, 0, "the grant passes over it");
            first.run("COMMIT");
            assert_eq!(watcher.own_one("x").body.as_deref(), Some("new"));
        } else {
            let grant = first.own_one("x");
            let call = second.background(|session| session.batch_execute(NEW));
            call.settle_down(&mut watcher);
            first.run("COMMIT");
            assert_eq!(sqlstate(&call.join().1.unwrap_err()), "TQ005");
            watcher.complete(&grant);
        }
    }
}

#[test]
fn a_replace_after_a_return_that_was_open_replaces_the_settled_task() {
    let db = Db::new();
    let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
    watcher
        .insert(json!([{"id": "a", "action": "x"}, {"id": "child", "action": "y", "depends_on": ["a"]}]))
        .unwrap();
    let grant = watcher.own_one("x");
    first.run("BEGIN");
    first.complete(&grant);
    let call = second.background(|session| session.batch_execute(NEW));
    call.settle_down(&mut watcher);
    first.run("COMMIT");
    if let Err(error) = call.join().1 {
        // A queue that looks without waiting still finds it in progress.
        assert_eq!(sqlstate(&error), "TQ005");
        watcher.run(NEW);
    }
    assert_eq!([watcher.state("a"), watcher.state("child")], ["ready", "ready"]);
    assert_eq!(watcher.own_one("x").body.as_deref(), Some("new"));
}

#[test]
fn two_replaces_at_once_leave_one_task() {
    let db = Db::new();
    let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
    watcher.insert(json!([{"id": "a", "action": "x", "body": "old"}])).unwrap();
    first.run("BEGIN");
    first.run(r#"SELECT taskq.replace_tasks('[{"id": "a", "action": "x", "body": "newer"}]')"#);
    let call = second.background(|session| session.batch_execute(NEW));
    call.settle_down(&mut watcher);
    first.run("COMMIT");
    let answer = call.join().1;
    assert_eq!(watcher.tasks().len(), 1);
    let expected = if answer.is_ok() { "new" } else { "newer" };
    assert_eq!(watcher.own_one("x").body.as_deref(), Some(expected), "{answer:?}");
    assert!(watcher.own("w", 1, &["x"]).unwrap().is_empty());
}

#[test]
fn replaces_in_opposite_orders_do_not_deadlock() {
    let db = Db::new();
    let mut session = db.connect();
    let ids: Vec<String> = (0..30).map(|i| i.to_string()).collect();
    let task = |id: &String| json!({"id": id, "action": "x"});
    session.insert(ids.iter().map(task).collect()).unwrap();
    let callers: Vec<_> = (0..3)
        .map(|caller| {
            let mut tasks: Vec<_> = ids.iter().map(task).collect();
            if caller % 2 == 1 {
                tasks.reverse();
            }
            db.connect().background(move |session| {
                for _ in 0..15 {
                    session.replace(json!(tasks)).expect("no deadlock");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join();
    }
    assert_eq!(session.own("w", 100, &["x"]).unwrap().len(), 30);
}

#[test]
fn a_dependency_on_a_settled_task_that_is_being_replaced_is_one_on_the_new_task() {
    let db = Db::new();
    let (mut session, mut watcher) = (db.connect(), db.connect());
    for link in [
        r#"SELECT taskq.insert_tasks('[{"id": "b", "action": "y", "depends_on": ["a"]}]')"#,
        r#"SELECT taskq.insert_task('b', 'y'); SELECT taskq.add_dependencies('{a}', '{b}')"#,
    ] {
        db.clear();
        watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        watcher.perform("x", "completed");
        session.run("BEGIN");
        session.run(NEW);
        let call = db.connect().background(move |session| session.batch_execute(link));
        call.settle_down(&mut watcher);
        session.run("COMMIT");
        call.join().1.unwrap();
        assert_eq!(watcher.broken(), [""; 0]);
        assert_eq!(watcher.state("b"), "blocked");
        watcher.perform("x", "completed");
        assert_eq!(watcher.state("b"), "ready");
    }
}

/// A transaction that holds a new id for which a replace waits may ask for an old one that the same replace is about to
/// remove.
#[test]
fn a_replace_that_waits_for_an_id_has_removed_nothing_yet() {
    let db = Db::new();
    for (new, old) in [("a", "b"), ("b", "a")] {
        db.clear();
        let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher.insert(json!([{"id": old, "action": "x"}])).unwrap();
        first.run("BEGIN");
        first.insert(json!([{"id": new, "action": "x"}])).unwrap();
        let both =
            json!([{"id": new, "action": "x", "body": "new"}, {"id": old, "action": "x", "body": "new"}]);
        let call = second.background(move |session| session.replace(both).map(|ids| ids.len()));
        assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
        first.run("SAVEPOINT s");
        let error = first.insert(json!([{"id": old, "action": "x"}])).unwrap_err();
        assert_eq!(sqlstate(&error), "TQ002", "it is there, and no session is removing it");
        first.run("ROLLBACK TO SAVEPOINT s; COMMIT");
        assert_eq!(call.join().1.unwrap(), 2);
        let bodies = watcher.all::<Option<String>>("SELECT body FROM taskq.tasks ORDER BY id");
        assert_eq!(bodies, [Some("new".to_owned()), Some("new".to_owned())]);
    }
}

/// The old task may have come while the replace waited for its id. What its end means for others counts: one of them is what
/// the new task waits for.
#[test]
fn the_end_of_a_newcomer_that_is_replaced_is_heard_of() {
    let db = Db::new();
    let (mut first, mut watcher) = (db.connect(), db.connect());
    watcher
        .insert(json!([{"id": "p", "action": "x"}, {"id": "c", "action": "y", "depends_on": ["p"]}]))
        .unwrap();
    first.run("BEGIN");
    first.insert(json!([{"id": "n", "action": "n", "to_signal_after": ["p"]}])).unwrap();
    let call = db
        .connect()
        .background(|session| session.replace(json!([{"id": "n", "action": "n", "depends_on": ["c"]}])));
    assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
    first.run("COMMIT");
    call.join().1.unwrap();
    let states = watcher.all::<String>("SELECT id || ' ' || state FROM taskq.tasks ORDER BY id");
    assert_eq!(states, ["c aborted", "n aborted", "p aborted"]);
    assert_eq!(watcher.broken(), [""; 0]);
}

/// Whose id it is by the time that the retry has the row.
#[test]
fn a_retry_of_what_is_being_replaced_is_one_of_the_new_task() {
    let db = Db::new();
    let (mut first, mut watcher) = (db.connect(), db.connect());
    watcher
        .insert(json!([{"id": "p", "action": "x"}, {"id": "c", "action": "y", "depends_on": ["p"]}]))
        .unwrap();
    watcher.perform("x", "aborted");
    first.run("BEGIN");
    first.replace(json!([{"id": "c", "action": "y", "depends_on": ["p"]}])).unwrap();
    let call = db.connect().background(|session| session.batch_execute("SELECT taskq.retry_tasks('{c}')"));
    assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
    first.run("COMMIT");
    // It cannot come back while the other stays as it is.
    assert_eq!(sqlstate(&call.join().1.unwrap_err()), "TQ005");
    assert_eq!(watcher.broken(), [""; 0]);
}
