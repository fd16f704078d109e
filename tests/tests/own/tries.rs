//! Each grant counts one try and has a token of its own; a rolled-back grant was none.

use std::collections::HashSet;

use serde_json::json;
use taskq_tests::{Db, sqlstate, state_of_all};

#[test]
fn each_grant_counts_one_try_and_gets_a_new_token() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let mut tokens = HashSet::new();
    for tries in 1..=20 {
        let grant = session.own_one("x");
        assert_eq!(grant.num_tries, tries);
        assert!(tokens.insert(grant.token), "a token is never granted twice");
        assert_eq!(session.task("a").unwrap().num_tries, tries);
        assert_eq!(session.give("a", grant.token, "pending").unwrap(), "pending");
    }
}

#[test]
fn tokens_of_one_call_differ_and_each_fits_one_task() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert((0..50).map(|i| json!({"id": i.to_string(), "action": "x"})).collect()).unwrap();
    let grants = session.own("w", 50, &["x"]).unwrap();
    assert_eq!(grants.iter().map(|grant| grant.token).collect::<HashSet<_>>().len(), 50);
    for (grant, other) in grants.iter().zip(grants.iter().skip(1)) {
        assert_eq!(sqlstate(&session.give(&grant.task_id, other.token, "completed").unwrap_err()), "TQ001");
    }
    for grant in &grants {
        session.complete(grant);
    }
}

#[test]
fn the_last_allowed_try_given_back_aborts() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "x", "max_tries": 2}, {"id": "b", "action": "y", "depends_on": ["a"]},
    ]);
    session.insert(tasks).unwrap();
    assert_eq!(session.perform("x", "pending"), "a");
    let last = session.own_one("x");
    assert_eq!(session.give("a", last.token, "pending").unwrap(), "aborted");
    let task = session.task("a").unwrap();
    assert_eq!((task.state.as_str(), task.num_tries, task.max_tries), ("aborted", 2, Some(2)));
    assert_eq!(session.state("b"), "aborted");
}

#[test]
fn a_rolled_back_grant_leaves_the_task_as_it_was() {
    let db = Db::new();
    let (mut session, mut other) = (db.connect(), db.connect());
    session.insert(json!([{"id": "a", "action": "x", "max_tries": 1}, {"id": "b", "action": "x"}])).unwrap();
    let before = state_of_all(&mut session);
    session.run("BEGIN");
    let void = session.own("w", 2, &["x"]).unwrap();
    assert_eq!(void.len(), 2);
    session.run("ROLLBACK");
    assert_eq!(state_of_all(&mut session), before);
    assert_eq!(sqlstate(&other.give("a", void[0].token, "completed").unwrap_err()), "TQ001");
    let again = other.own("w", 2, &["x"]).unwrap();
    let ids: Vec<&str> = again.iter().map(|grant| grant.task_id.as_str()).collect();
    assert_eq!(ids, ["a", "b"], "they keep their place in the line");
    assert_eq!(again[0].num_tries, 1, "a try that was rolled back does not count");
    assert_ne!(again[0].token, void[0].token);
}

#[test]
fn a_rolled_back_return_leaves_the_task_with_its_holder() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]}]))
        .unwrap();
    let grant = session.own_one("x");
    let before = state_of_all(&mut session);
    for code in ["completed", "aborted", "pending"] {
        session.run("BEGIN");
        assert_eq!(session.give("a", grant.token, code).unwrap(), code);
        session.run("ROLLBACK");
        assert_eq!(state_of_all(&mut session), before, "{code}");
    }
    session.complete(&grant);
    assert_eq!(session.state("b"), "ready");
}

#[test]
fn a_death_of_the_connection_in_the_middle_of_a_transaction_undoes_it() {
    let db = Db::new();
    let (mut doomed, mut watcher) = (db.connect(), db.connect());
    watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    doomed.run("BEGIN");
    doomed.own_one("x");
    watcher.run(&format!("SELECT pg_terminate_backend({}, 10000)", doomed.pid()));
    assert_eq!(watcher.state("a"), "ready");
    assert_eq!(watcher.own_one("x").num_tries, 1);
}
