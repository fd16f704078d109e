//! What a return does to the dependents, by condition; and how many of their dependencies aborted.

use serde_json::json;
use taskq_tests::{Db, Session};

const CONDITIONS: [&str; 3] = ["completed", "settled", "aborted"];

/// A parent and a child by each condition.
fn family(session: &mut Session) {
    let mut tasks = vec![json!({"id": "parent", "action": "x"})];
    for condition in CONDITIONS {
        let parent = json!({"id": "parent", "condition": condition});
        tasks.push(json!({"id": condition, "action": condition, "depends_on": [parent]}));
    }
    session.insert(json!(tasks)).unwrap();
}

#[test]
fn a_completed_parent_frees_by_completed_and_settled_and_skips_by_aborted() {
    let db = Db::new();
    let mut session = db.connect();
    family(&mut session);
    session.perform("x", "completed");
    assert_eq!(CONDITIONS.map(|id| session.state(id)), ["ready", "ready", "aborted"]);
    let status = session.task("aborted").unwrap().status.unwrap_or_default();
    assert!(status.contains("skipped"), "the status says that it was skipped: {status:?}");
    assert_eq!(session.own_one("completed").num_failures, 0);
    assert_eq!(session.own_one("settled").num_failures, 0);
}

#[test]
fn an_aborted_parent_frees_by_settled_and_aborted_and_aborts_by_completed() {
    let db = Db::new();
    let mut session = db.connect();
    family(&mut session);
    session.perform("x", "aborted");
    assert_eq!(CONDITIONS.map(|id| session.state(id)), ["aborted", "ready", "ready"]);
    let status = session.task("completed").unwrap().status.unwrap_or_default();
    assert!(status.contains("parent"), "the status says because of whom: {status:?}");
    assert_eq!(session.own_one("settled").num_failures, 1);
    assert_eq!(session.own_one("aborted").num_failures, 1);
}

#[test]
fn a_parent_given_back_frees_no_dependent() {
    let db = Db::new();
    let mut session = db.connect();
    family(&mut session);
    session.perform("x", "pending");
    assert_eq!(CONDITIONS.map(|id| session.state(id)), ["blocked"; 3]);
    session.perform("x", "completed");
    assert_eq!(CONDITIONS.map(|id| session.state(id)), ["ready", "ready", "aborted"]);
}

#[test]
fn num_failures_counts_the_dependencies_that_aborted() {
    let db = Db::new();
    let mut session = db.connect();
    let parents: Vec<_> = (0..6).map(|i| json!({"id": format!("p{i}"), "action": "x"})).collect();
    session.insert(json!(parents)).unwrap();
    let after: Vec<_> = (0..6).map(|i| json!({"id": format!("p{i}"), "condition": "settled"})).collect();
    session.insert(json!([{"id": "child", "action": "y", "depends_on": after}])).unwrap();
    for code in ["completed", "aborted", "aborted", "completed", "aborted", "aborted"] {
        session.perform("x", code);
    }
    let child = session.task("child").unwrap();
    assert_eq!((child.num_signals, child.num_failures, child.total_dependencies), (6, 4, 6));
    assert_eq!(session.own_one("y").num_failures, 4);
}

#[test]
fn mixed_conditions_all_have_to_hold() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b"}, {"id": "c", "action": "c"},
        {"id": "child", "action": "y", "depends_on":
            ["a", {"id": "b", "condition": "aborted"}, {"id": "c", "condition": "settled"}]},
    ]);
    session.insert(tasks).unwrap();
    session.perform("b", "aborted");
    session.perform("c", "aborted");
    assert_eq!(session.state("child"), "blocked");
    session.perform("a", "completed");
    assert_eq!(session.own_one("y").num_failures, 2);
}

#[test]
fn one_lost_dependency_aborts_at_once_though_others_are_open() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b"},
        {"id": "child", "action": "y", "depends_on": ["a", "b"]},
        {"id": "grandchild", "action": "y", "depends_on": [{"id": "child", "condition": "settled"}]},
    ]);
    session.insert(tasks).unwrap();
    session.perform("a", "aborted");
    assert_eq!([session.state("child"), session.state("grandchild")], ["aborted", "ready"]);
    // The other parent settles later: the child is settled and never changes again.
    session.perform("b", "completed");
    assert_eq!([session.state("child"), session.state("grandchild")], ["aborted", "ready"]);
}

#[test]
fn settling_and_signalling_are_one_transaction() {
    let db = Db::new();
    let (mut session, mut other) = (db.connect(), db.connect());
    family(&mut session);
    let grant = session.own_one("x");
    session.run("BEGIN");
    session.complete(&grant);
    assert_eq!(other.state("parent"), "in-progress");
    assert_eq!(CONDITIONS.map(|id| other.state(id)), ["blocked"; 3]);
    session.run("COMMIT");
    assert_eq!(other.state("parent"), "completed");
    assert_eq!(CONDITIONS.map(|id| other.state(id)), ["ready", "ready", "aborted"]);
}
