//! All or nothing, and `on_conflict => 'skip'`.

use serde_json::json;
use taskq_tests::{Answer, Db, Session, sqlstate, state_of_all};

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

/// Two sessions insert the same id, the first in a transaction that ends like this: what the other is told, and a
/// session that looks afterwards.
fn two_insert(db: &Db, end: &str) -> (Answer<Vec<String>>, Session) {
    let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
    first.run("BEGIN");
    first.insert(json!([{"id": "same", "action": "x", "body": "first"}])).unwrap();
    let other =
        second.background(|session| session.insert(json!([{"id": "same", "action": "x", "body": "second"}])));
    other.settle_down(&mut watcher);
    first.run(end);
    (other.join().1, watcher)
}

#[test]
fn two_sessions_that_insert_the_same_id_cannot_both_succeed() {
    let db = Db::new();
    let (answer, mut watcher) = two_insert(&db, "COMMIT");
    assert_eq!(sqlstate(&answer.unwrap_err()), "TQ002");
    assert_eq!(watcher.task("same").unwrap().body.as_deref(), Some("first"));
}

#[test]
fn the_second_of_two_inserts_wins_when_the_first_rolls_back() {
    let db = Db::new();
    let (answer, mut watcher) = two_insert(&db, "ROLLBACK");
    assert_eq!(answer.unwrap(), ["same"]);
    assert_eq!(watcher.own_one("x").body.as_deref(), Some("second"));
}

#[test]
fn skip_waits_for_a_concurrent_insert_of_the_same_id() {
    let db = Db::new();
    let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
    first.run("BEGIN");
    first.insert(json!([{"id": "same", "action": "x", "body": "first"}])).unwrap();
    let other = second.background(|session| {
        let tasks = json!([{"id": "same", "action": "x", "body": "second"}, {"id": "other", "action": "x"}]);
        session.insert_with(tasks, "on_conflict => 'skip'")
    });
    other.settle_down(&mut watcher);
    first.run("COMMIT");
    assert_eq!(other.join().1.unwrap(), ["other"]);
    assert_eq!(watcher.task("same").unwrap().body.as_deref(), Some("first"));
}
