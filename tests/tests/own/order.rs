//! Higher priority first, then first in, first out, over all the listed actions together.
//!
//! A claim that takes one action after the other, or sorts by anything but (priority, position), fails here.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

fn owned(session: &mut Session, max_tasks: i32, actions: &[&str]) -> Vec<String> {
    session.own("w", max_tasks, actions).unwrap().into_iter().map(|grant| grant.task_id).collect()
}

#[test]
fn priority_then_first_in_over_several_actions_at_once() {
    let db = Db::new();
    let mut session = db.connect();
    let task =
        |id: &str, action: &str, priority: i32| json!({"id": id, "action": action, "priority": priority});
    session
        .insert(json!([task("1", "x", 0), task("2", "y", 0), task("3", "z", 0), task("4", "x", 5)]))
        .unwrap();
    session
        .insert(json!([task("5", "y", 0), task("6", "x", -1), task("7", "y", 5), task("8", "x", 0)]))
        .unwrap();
    assert_eq!(owned(&mut session, 3, &["y", "x"]), ["4", "7", "1"]);
    assert_eq!(owned(&mut session, 2, &["x", "y"]), ["2", "5"]);
    assert_eq!(owned(&mut session, 9, &["z", "y", "x"]), ["3", "8", "6"]);
}

#[test]
fn the_extreme_priorities_are_priorities() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks: Value = [0, i32::MIN, i32::MAX, -1, 1]
        .iter()
        .map(|p| json!({"id": p.to_string(), "action": "x", "priority": p}))
        .collect();
    session.insert(tasks).unwrap();
    assert_eq!(owned(&mut session, 9, &["x"]), ["2147483647", "1", "0", "-1", "-2147483648"]);
}

#[test]
fn an_action_listed_twice_counts_once() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "1", "action": "x"}, {"id": "2", "action": "x"}])).unwrap();
    assert_eq!(owned(&mut session, 5, &["x", "x", "x"]), ["1", "2"]);
}

#[test]
fn hundreds_of_actions_in_one_call_keep_the_order() {
    let db = Db::new();
    let mut session = db.connect();
    let actions: Vec<String> = (0..300).map(|i| format!("action {i}")).collect();
    let tasks: Value = (0..900)
        .map(|i| json!({"id": i.to_string(), "action": actions[i * 7 % 300], "priority": i % 3}))
        .collect();
    session.insert(tasks).unwrap();
    let listed: Vec<&str> = actions.iter().map(String::as_str).collect();
    let mut expected: Vec<usize> = (0..900).collect();
    expected.sort_by_key(|i| (std::cmp::Reverse(i % 3), *i));
    let mut got = Vec::new();
    loop {
        let batch = owned(&mut session, 70, &listed);
        if batch.is_empty() {
            break;
        }
        got.extend(batch.iter().map(|id| id.parse::<usize>().unwrap()));
    }
    assert_eq!(got, expected);
}

#[test]
fn a_task_that_comes_back_takes_the_end_of_its_priority() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks: Value = ["1", "2", "3", "4"].iter().map(|id| json!({"id": id, "action": "x"})).collect();
    session.insert(tasks).unwrap();
    session.insert(json!([{"id": "low", "action": "x", "priority": -1}])).unwrap();
    assert_eq!(session.perform("x", "pending"), "1");
    assert_eq!(session.perform("x", "pending"), "2");
    session.insert(json!([{"id": "5", "action": "x"}])).unwrap();
    assert_eq!(owned(&mut session, 9, &["x"]), ["3", "4", "1", "2", "5", "low"]);
}

#[test]
fn a_task_freed_late_takes_the_end_of_its_priority() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "freed", "action": "x", "depends_on": ["gate"]},
        {"id": "gate", "action": "y"},
        {"id": "1", "action": "x"},
    ]);
    session.insert(tasks).unwrap();
    session.insert(json!([{"id": "2", "action": "x"}])).unwrap();
    session.perform("y", "completed");
    session.insert(json!([{"id": "3", "action": "x"}])).unwrap();
    assert_eq!(owned(&mut session, 9, &["x"]), ["1", "2", "freed", "3"]);
}

#[test]
fn a_task_taken_from_a_dead_worker_takes_the_end_of_its_priority() {
    let db = Db::new();
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "1", "action": "x"}, {"id": "2", "action": "x"}])).unwrap();
    session.own_one_with("x", "lease => '1 minute'");
    session.set_now(Some("2030-01-01 00:02:00Z"));
    assert_eq!(owned(&mut session, 9, &["x"]), ["2", "1"]);
}

#[test]
fn max_tasks_is_the_most_there_is() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks: Value = (0..10).map(|i| json!({"id": i.to_string(), "action": "x"})).collect();
    session.insert(tasks).unwrap();
    assert_eq!(owned(&mut session, 0, &["x"]).len(), 0);
    assert_eq!(owned(&mut session, 4, &["x"]).len(), 4);
    assert_eq!(owned(&mut session, i32::MAX, &["x"]).len(), 6);
    assert_eq!(owned(&mut session, i32::MAX, &["x"]).len(), 0);
}
