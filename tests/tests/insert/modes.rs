//! All or nothing, and `on_conflict => 'skip'`.

use serde_json::json;
use taskq_tests::Db;

#[test]
fn skip_leaves_existing_tasks_alone_and_returns_only_new_ids() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "old", "action": "x", "body": "first", "priority": 1}, {"id": "gate", "action": "y"},
    ]));
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
