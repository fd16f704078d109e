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
