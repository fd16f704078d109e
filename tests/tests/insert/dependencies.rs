//! Dependencies among the tasks of one call and on tasks already there, in every order and form.

use serde_json::json;
use taskq_tests::{Db, Session};

/// The order in which one worker gets them all.
fn performed(session: &mut Session) -> Vec<String> {
    let mut order = Vec::new();
    while let Some(grant) = session.own("w", 1, &["x"]).unwrap().pop() {
        session.complete(&grant);
        order.push(grant.task_id);
    }
    order
}

#[test]
fn a_dependency_may_be_said_at_either_end_and_in_any_order_of_the_array() {
    let db = Db::new();
    let forms = [
        json!([{"id": "1", "action": "x"}, {"id": "2", "action": "x", "depends_on": ["1"]}]),
        json!([{"id": "2", "action": "x", "depends_on": ["1"]}, {"id": "1", "action": "x"}]),
        json!([{"id": "2", "action": "x"}, {"id": "1", "action": "x", "to_signal_after": ["2"]}]),
        json!([{"id": "1", "action": "x", "to_signal_after": ["2"]}, {"id": "2", "action": "x"}]),
        json!([{"id": "2", "action": "x", "depends_on": [{"id": "1"}]}, {"id": "1", "action": "x"}]),
        json!([{"id": "2", "action": "x", "depends_on": [{"id": "1", "condition": "settled"}]},
               {"id": "1", "action": "x"}]),
        json!([{"id": "2", "action": "x"},
               {"id": "1", "action": "x", "to_signal_after": [{"id": "2", "condition": "completed"}]}]),
    ];
    for tasks in forms {
        db.clear();
        let mut session = db.connect();
        session.insert(tasks.clone()).unwrap();
        let blocked = session.task("2").unwrap();
        assert_eq!(
            (blocked.state.as_str(), blocked.num_signals, blocked.total_dependencies),
            ("blocked", 0, 1),
            "{tasks}"
        );
        assert_eq!(performed(&mut session), ["1", "2"], "{tasks}");
    }
}

#[test]
fn a_dependency_said_twice_counts_once() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "1", "action": "x", "to_signal_after": ["2"]},
        {"id": "2", "action": "x", "depends_on": ["1", "1", {"id": "1", "condition": "completed"}]},
    ]));
    assert_eq!(session.task("2").unwrap().total_dependencies, 1);
    assert_eq!(performed(&mut session), ["1", "2"]);
}
