//! All or nothing, and `on_conflict => 'skip'`.

use serde_json::json;
use taskq_tests::{Db, sqlstate, state_of_all};

#[test]
fn one_id_in_use_spoils_the_whole_call() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "taken", "action": "x"}])).unwrap();
    let before = state_of_all(&mut session);
    let mut tasks: Vec<_> = (0..1000).map(|i| json!({"id": format!("n{i}"), "action": "x"})).collect();
    tasks.push(json!({"id": "taken", "action": "x"}));
    assert_eq!(sqlstate(&session.insert(json!(tasks)).unwrap_err()), "TQ002");
    assert_eq!(state_of_all(&mut session), before);
}

#[test]
fn skip_leaves_existing_tasks_alone_and_returns_only_new_ids() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "old", "action": "x", "body": "first", "priority": 1}, {"id": "gate", "action": "y"},
    ]);
    session.insert(tasks).unwrap();
    let before = session.task("old");
    let tasks = json!([
        {"id": "new 1", "action": "x"},
        {"id": "old", "action": "other", "body": "second", "depends_on": ["gate"], "to_signal_after": ["gate"]},
        {"id": "new 2", "action": "x", "depends_on": ["old"]},
        {"id": "new 1", "action": "other"},
    ]);
    assert_eq!(session.insert_with(tasks.clone(), "on_conflict => 'skip'").unwrap(), ["new 1", "new 2"]);
    assert_eq!(session.task("old"), before);
    assert_eq!(session.state("gate"), "ready", "a task that is skipped adds no dependency");
    assert_eq!(
        session.task("new 1").unwrap().action,
        "x",
        "the first of two in the array is the one inserted"
    );
    assert_eq!(session.state("new 2"), "blocked");
    assert!(session.insert_with(tasks, "on_conflict => 'skip'").unwrap().is_empty());
}

#[test]
fn skip_leaves_a_settled_and_a_held_task_alone() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "done", "action": "x"}, {"id": "held", "action": "x"}])).unwrap();
    session.perform("x", "completed");
    let grant = session.own_one("x");
    let tasks = json!([{"id": "done", "action": "x"}, {"id": "held", "action": "x"}]);
    assert!(session.insert_with(tasks, "on_conflict => 'skip'").unwrap().is_empty());
    assert_eq!([session.state("done"), session.state("held")], ["completed", "in-progress"]);
    session.complete(&grant);
}
