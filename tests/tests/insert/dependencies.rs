//! Dependencies among the tasks of one call and on tasks already there, in every order and form.

use serde_json::{Value, json};
use taskq_tests::{Db, Session, sqlstate};

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
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "1", "action": "x", "to_signal_after": ["2"]},
        {"id": "2", "action": "x", "depends_on": ["1", "1", {"id": "1", "condition": "completed"}]},
    ]);
    session.insert(tasks).unwrap();
    assert_eq!(session.task("2").unwrap().total_dependencies, 1);
    assert_eq!(performed(&mut session), ["1", "2"]);
}

#[test]
fn a_dependency_said_twice_with_two_conditions_is_refused() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "1", "action": "x"},
        {"id": "2", "action": "x", "depends_on": ["1", {"id": "1", "condition": "settled"}]},
    ]);
    let error = session.insert(tasks).unwrap_err();
    assert!(["TQ005", "TQ006"].contains(&sqlstate(&error)), "{error:?}");
}

#[test]
fn dependencies_reach_into_the_queue_in_both_directions() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "1", "action": "x"}])).unwrap();
    session.insert(json!([{"id": "4", "action": "x"}])).unwrap();
    let tasks = json!([
        {"id": "2", "action": "x", "depends_on": ["1"], "to_signal_after": ["3", "4"]},
        {"id": "3", "action": "x", "to_signal_after": ["4"]},
    ]);
    session.insert(tasks).unwrap();
    let states = ["1", "2", "3", "4"].map(|id| session.state(id));
    assert_eq!(states, ["ready", "blocked", "blocked", "blocked"]);
    assert_eq!(performed(&mut session), ["1", "2", "3", "4"]);
}

#[test]
fn a_scheduled_task_that_gets_a_dependency_waits_for_both() {
    let db = Db::new();
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "late", "action": "x", "delay": "1 hour"}])).unwrap();
    session.insert(json!([{"id": "first", "action": "y", "to_signal_after": ["late"]}])).unwrap();
    assert_eq!(session.state("late"), "blocked");
    session.perform("y", "completed");
    assert_eq!(session.state("late"), "scheduled");
    assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
    session.set_now(Some("2030-01-01 01:00:01Z"));
    assert_eq!(session.own_one("x").task_id, "late");
}

#[test]
fn a_fan_in_counts_each_dependency() {
    let db = Db::new();
    let mut session = db.connect();
    let parents: Vec<String> = (0..50).map(|i| format!("p{i}")).collect();
    let mut tasks = vec![json!({"id": "child", "action": "y", "depends_on": parents})];
    tasks.extend(parents.iter().map(|id| json!({"id": id, "action": "x"})));
    session.insert(Value::Array(tasks)).unwrap();
    for done in 0..50 {
        let child = session.task("child").unwrap();
        assert_eq!(
            (child.state.as_str(), child.num_signals, child.total_dependencies),
            ("blocked", done, 50)
        );
        session.perform("x", "completed");
    }
    assert_eq!(session.state("child"), "ready");
    assert_eq!(session.perform("y", "completed"), "child");
}

#[test]
fn a_missing_dependency_is_ignored_only_on_request() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "x", "depends_on": ["absent", "b"], "to_signal_after": ["none"]},
        {"id": "b", "action": "x"},
    ]);
    assert_eq!(sqlstate(&session.insert(tasks.clone()).unwrap_err()), "TQ003");
    assert_eq!(session.tasks().len(), 0);
    session.insert_with(tasks, "if_missing => 'ignore'").unwrap();
    let task = session.task("a").unwrap();
    assert_eq!((task.state.as_str(), task.total_dependencies), ("blocked", 1));
    assert_eq!(performed(&mut session), ["b", "a"]);
}

#[test]
fn a_task_given_back_can_be_made_to_wait_again() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "again", "action": "x"}])).unwrap();
    session.perform("x", "pending");
    session.insert(json!([{"id": "first", "action": "x"}])).unwrap();
    session.depend_on("first", "again").unwrap();
    assert_eq!(session.state("again"), "blocked");
    assert_eq!(performed(&mut session), ["first", "again"]);
    assert_eq!(session.task("again").unwrap().num_tries, 2);
}
