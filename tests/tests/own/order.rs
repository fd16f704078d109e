//! Higher priority first, then first in, first out, over all the listed actions together.
//!
//! A claim that takes one action after the other, or sorts by anything but (priority, position), fails here.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

fn owned(session: &mut Session, max_tasks: i32, actions: &[&str]) -> Vec<String> {
    session.own("w", max_tasks, actions).unwrap().into_iter().map(|grant| grant.task_id).collect()
}

#[test]
fn the_extreme_priorities_are_priorities() {
    let (_db, [mut session]) = Db::connected();
    let tasks: Value = [0, i32::MIN, i32::MAX, -1, 1]
        .iter()
        .map(|p| json!({"id": p.to_string(), "action": "x", "priority": p}))
        .collect();
    session.insert(tasks).unwrap();
    assert_eq!(owned(&mut session, 9, &["x"]), ["2147483647", "1", "0", "-1", "-2147483648"]);
}

#[test]
fn hundreds_of_actions_in_one_call_keep_the_order() {
    let (_db, [mut session]) = Db::connected();
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
