//! Dependencies on tasks that are settled already: they count at once, or are lost at once, in the same transaction.

use serde_json::json;
use taskq_tests::{Db, Session};

/// `done` completed and `failed` aborted.
fn with_settled(db: &Db) -> Session {
    let mut session = db.connect();
    session.insert(json!([{"id": "done", "action": "x"}, {"id": "failed", "action": "x"}])).unwrap();
    session.perform("x", "completed");
    session.perform("x", "aborted");
    session
}

#[test]
fn a_settled_dependency_counts_at_once_or_is_lost_at_once() {
    let db = Db::new();
    let mut session = with_settled(&db);
    let cases = [
        ("done", "completed", "ready"),
        ("done", "settled", "ready"),
        ("done", "aborted", "aborted"),
        ("failed", "completed", "aborted"),
        ("failed", "settled", "ready"),
        ("failed", "aborted", "ready"),
    ];
    for (after, condition, expected) in cases {
        let id = format!("{after} {condition}");
        let tasks = json!([{"id": id, "action": "y", "depends_on": [{"id": after, "condition": condition}]}]);
        assert_eq!(session.insert(tasks).unwrap(), [id.as_str()]);
        let task = session.task(&id).unwrap();
        assert_eq!(task.state, expected, "{id}");
        if expected == "ready" {
            let failures = i32::from(after == "failed");
            assert_eq!(
                (task.num_signals, task.total_dependencies, task.num_failures),
                (1, 1, failures),
                "{id}"
            );
            let grant = session.own_one("y");
            assert_eq!((grant.task_id, grant.num_failures), (id, failures));
        } else {
            assert!(task.status.is_some_and(|status| status.contains(after)), "the status of {id} says why");
        }
    }
}

/// It waits for nothing then, and stays where it is.
#[test]
fn a_settled_dependency_that_is_added_later_counts_wherever_the_task_is() {
    let db = Db::new();
    let mut session = with_settled(&db);
    session
        .insert(json!([
            {"id": "ready", "action": "y"}, {"id": "scheduled", "action": "y", "not_before": "2100-01-01"},
            {"id": "parked", "action": "z", "group_id": "g"},
        ]))
        .unwrap();
    session.run("SELECT taskq.pause_group('g')");
    assert!(session.own("w", 9, &["z"]).unwrap().is_empty());
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.parked"), 1);
    for id in ["ready", "scheduled", "parked"] {
        session.run(&format!("SELECT taskq.add_dependencies('{{done,failed}}', '{{{id},{id}}}', 'settled')"));
        let task = session.task(id).unwrap();
        assert_eq!((task.num_signals, task.total_dependencies, task.num_failures), (2, 2, 1), "{id}");
        assert_ne!(task.state, "blocked", "{id}");
    }
}

#[test]
fn a_settled_and_an_open_dependency_leave_one_to_wait_for() {
    let db = Db::new();
    let mut session = with_settled(&db);
    let tasks = json!([
        {"id": "open", "action": "x"},
        {"id": "child", "action": "y", "depends_on": ["done", "open", {"id": "failed", "condition": "settled"}]},
    ]);
    session.insert(tasks).unwrap();
    let child = session.task("child").unwrap();
    assert_eq!(
        (child.state.as_str(), child.num_signals, child.total_dependencies, child.num_failures),
        ("blocked", 2, 3, 1)
    );
    session.perform("x", "completed");
    assert_eq!(session.own_one("y").num_failures, 1);
}

#[test]
fn a_loss_travels_through_the_tasks_of_the_same_call() {
    let db = Db::new();
    let mut session = with_settled(&db);
    // Said from the end to the start, so that nothing can be decided in array order.
    let tasks = json!([
        {"id": "d", "action": "x", "depends_on": ["c"]},
        {"id": "handler", "action": "y", "depends_on": [{"id": "d", "condition": "aborted"}]},
        {"id": "always", "action": "y", "depends_on": [{"id": "c", "condition": "settled"}]},
        {"id": "c", "action": "x", "depends_on": ["b"]},
        {"id": "b", "action": "x", "depends_on": ["failed"]},
    ]);
    session.insert(tasks).unwrap();
    let states = ["b", "c", "d", "handler", "always"].map(|id| session.state(id));
    assert_eq!(states, ["aborted", "aborted", "aborted", "ready", "ready"]);
}

#[test]
fn a_loss_reaches_a_task_that_is_already_there() {
    let db = Db::new();
    let mut session = with_settled(&db);
    session
        .insert(json!([{"id": "old", "action": "y"}, {"id": "older", "action": "y", "depends_on": ["old"]}]))
        .unwrap();
    session
        .insert(json!([{"id": "new", "action": "y", "depends_on": ["failed"], "to_signal_after": ["old"]}]))
        .unwrap();
    assert_eq!(["new", "old", "older"].map(|id| session.state(id)), ["aborted"; 3]);
}

#[test]
fn a_spontaneous_task_without_an_open_dependency_completes_at_once() {
    let db = Db::new();
    let mut session = with_settled(&db);
    let tasks = json!([
        {"id": "after", "action": "y", "depends_on": ["s2"]},
        {"id": "s2", "action": "s", "spontaneous": true, "depends_on": ["s1", "done"]},
        {"id": "s1", "action": "s", "spontaneous": true},
        {"id": "s3", "action": "s", "spontaneous": true, "depends_on": [{"id": "failed", "condition": "settled"}]},
        {"id": "lost", "action": "s", "spontaneous": true, "depends_on": ["failed"]},
    ]);
    session.insert(tasks).unwrap();
    let states = ["s1", "s2", "s3", "lost", "after"].map(|id| session.state(id));
    assert_eq!(states, ["completed", "completed", "completed", "aborted", "ready"]);
    assert!(session.own("w", 5, &["s"]).unwrap().is_empty(), "no worker ever gets a spontaneous task");
    assert_eq!(session.wait("s2", "0").unwrap().unwrap().status_code, "completed");
}

#[test]
fn a_spontaneous_task_is_never_granted() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "x"}, {"id": "s", "action": "x", "spontaneous": true, "depends_on": ["a"]},
    ]);
    session.insert(tasks).unwrap();
    let grants = session.own("w", 5, &["x"]).unwrap();
    assert_eq!(grants.len(), 1);
    session.complete(&grants[0]);
    assert_eq!(session.state("s"), "completed");
    assert!(session.own("w", 5, &["x"]).unwrap().is_empty());
}
