//! Limited and unlimited actions in one call of `own_tasks`: the order is that of all of them together, and what a limit
//! keeps back hides nothing.
//!
//! Why: a claim that walks its actions one by one starves the later ones, and one that stops at the first full action
//! leaves workers idle. On wrong code the ids come in another order, or some that are free do not come.

use serde_json::json;
use taskq_tests::Db;

use crate::{call, owned, tasks};

#[test]
fn priority_comes_first_over_limited_and_unlimited_actions() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('a', max_concurrency => 2)");
    call(&mut session, "set_action('r', rate_limit => 2, rate_period => '1 hour')");
    session
        .insert(json!([
            {"id": "a low", "action": "a", "priority": 1}, {"id": "u low", "action": "u", "priority": 1},
            {"id": "r mid", "action": "r", "priority": 5}, {"id": "u high", "action": "u", "priority": 9},
            {"id": "a high", "action": "a", "priority": 9}, {"id": "r low", "action": "r", "priority": 1},
        ]))
        .unwrap();
    let actions = ["u", "r", "a"];
    assert_eq!(owned(&mut session, 4, &actions), ["u high", "a high", "r mid", "a low"]);
    assert_eq!(owned(&mut session, 9, &actions), ["u low", "r low"]);
}

#[test]
fn first_in_is_first_out_over_limited_and_unlimited_actions() {
    let (_db, [mut session]) = Db::connected();
    for action in ["a", "b"] {
        call(&mut session, &format!("set_action('{action}', max_concurrency => 50)"));
    }
    let actions = ["a", "u", "b", "v"];
    let all: Vec<String> = (0..40).map(|i| format!("t{i:02}")).collect();
    let elements: Vec<_> =
        all.iter().enumerate().map(|(i, id)| json!({"id": id, "action": actions[i * 7 % 4]})).collect();
    session.insert(json!(elements)).unwrap();
    let mut granted = Vec::new();
    for batch in [1, 2, 7, 30] {
        granted.extend(owned(&mut session, batch, &actions));
    }
    assert_eq!(granted, all);
}

#[test]
fn a_full_action_hides_nothing_of_the_others() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('full', max_concurrency => 1)");
    call(&mut session, "set_action('paused')");
    call(&mut session, "pause_action('paused')");
    call(&mut session, "set_action('spent', rate_limit => 1, rate_period => '1 day')");
    session.insert(tasks("full", 300)).unwrap();
    session.insert(tasks("paused", 300)).unwrap();
    session.insert(tasks("spent", 300)).unwrap();
    session.insert(json!([{"id": "low", "action": "u", "priority": -9}])).unwrap();
    let actions = ["full", "paused", "spent", "u"];
    assert_eq!(owned(&mut session, 2, &actions), ["full1", "spent1"]);
    assert_eq!(owned(&mut session, 5, &actions), ["low"]);
}

#[test]
fn a_limit_that_is_used_up_in_a_call_leaves_its_room_to_others() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('a', max_concurrency => 2)");
    session.insert(tasks("a", 20)).unwrap();
    session.insert(tasks("b", 20)).unwrap();
    let granted = owned(&mut session, 10, &["a", "b"]);
    assert_eq!(granted, ["a1", "a2", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8"]);
}

#[test]
fn what_another_call_has_taken_does_not_let_lower_priority_of_its_action_go_first() {
    let (_db, [mut a, mut b]) = Db::connected();
    call(&mut a, "set_action('x', max_concurrency => 50)");
    a.insert(json!([
        {"id": "x high 1", "action": "x", "priority": 9}, {"id": "x high 2", "action": "x", "priority": 9},
        {"id": "u", "action": "u", "priority": 5}, {"id": "x low", "action": "x"},
    ]))
    .unwrap();
    a.run("BEGIN");
    assert_eq!(owned(&mut a, 2, &["x", "u"]), ["x high 1", "x high 2"]);
    assert_eq!(owned(&mut b, 1, &["x", "u"]), ["u"]);
    assert_eq!(owned(&mut b, 1, &["x", "u"]), ["x low"]);
    a.run("COMMIT");
}

#[test]
fn an_action_named_twice_counts_once() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_concurrency => 1)");
    session.insert(tasks("x", 3)).unwrap();
    assert_eq!(owned(&mut session, 5, &["x", "x"]), ["x1"]);
}

#[test]
fn what_is_in_no_group_comes_by_its_priority_beside_groups_with_limits() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_group('g', max_concurrency => 9)");
    session
        .insert(json!([
            {"id": "low", "action": "x", "priority": 1}, {"id": "of g", "action": "x", "priority": 3, "group_id": "g"},
            {"id": "mid", "action": "x", "priority": 5}, {"id": "high", "action": "x", "priority": 9},
        ]))
        .unwrap();
    for id in ["high", "mid", "of g", "low"] {
        assert_eq!(owned(&mut session, 1, &["x"]), [id]);
    }
}
