//! `rerun_tasks` with `downstream => false`: dependents keep what they have counted.

use serde_json::json;
use taskq_tests::{Db, Session};

use crate::{counts, states};

fn alone(session: &mut Session, ids: &str) -> i64 {
    session.one(&format!("SELECT taskq.rerun_tasks('{ids}', false)"))
}

fn graph(session: &mut Session) {
    session
        .insert(json!([
            {"id": "a", "action": "a"}, {"id": "b", "action": "b"},
            {"id": "done", "action": "d", "depends_on": ["a"]},
            {"id": "held", "action": "h", "depends_on": ["a"]},
            {"id": "ready", "action": "r", "depends_on": ["a"]},
            {"id": "blocked", "action": "w", "depends_on": ["a", "b"]},
        ]))
        .unwrap();
    session.perform("a", "completed");
    session.perform("d", "completed");
}

#[test]
fn only_what_is_named_starts_over() {
    for end in ["completed", "aborted"] {
        let db = Db::new();
        let mut session = db.connect();
        graph(&mut session);
        let held = session.own_one("h");
        assert_eq!(alone(&mut session, "{a}"), 1);
        assert_eq!(
            states(&mut session, ["a", "done", "held", "ready", "blocked"]),
            ["ready", "completed", "in-progress", "ready", "blocked"]
        );
        assert_eq!(counts(&mut session, "blocked"), ("blocked".to_owned(), 1, 2, 0));
        let why: Vec<String> = session.all("SELECT * FROM taskq.why('blocked')");
        assert!(why.iter().all(|why| !why.contains("\"a\"")), "{why:?}");
        assert!(session.broken().is_empty(), "{:?}", session.broken());
        session.complete(&held);
        // A second end counts for none of them, however it comes.
        session.perform("a", end);
        assert_eq!(counts(&mut session, "blocked"), ("blocked".to_owned(), 1, 2, 0), "{end}");
        assert_eq!(session.state("ready"), "ready", "{end}");
        assert!(session.broken().is_empty(), "{:?}", session.broken());
        session.perform("b", "completed");
        assert_eq!(session.state("blocked"), "ready", "{end}");
        session.perform("w", "completed");
        session.perform("r", "completed");
    }
}

#[test]
fn with_the_others_they_wait_again_later() {
    let db = Db::new();
    let mut session = db.connect();
    graph(&mut session);
    alone(&mut session, "{a}");
    session.perform("a", "completed");
    assert_eq!(session.one::<i64>("SELECT taskq.rerun_tasks('{a}')"), 2, "a and done");
    assert_eq!(
        states(&mut session, ["a", "done", "held", "ready", "blocked"]),
        ["ready", "blocked", "blocked", "blocked", "blocked"]
    );
    session.perform("a", "completed");
    session.perform("b", "completed");
    assert_eq!(states(&mut session, ["done", "held", "ready", "blocked"]), ["ready"; 4]);
}

#[test]
fn those_named_together_wait_for_each_other() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([
            {"id": "a", "action": "a"}, {"id": "b", "action": "b", "depends_on": ["a"]},
            {"id": "c", "action": "c", "depends_on": ["b"]},
        ]))
        .unwrap();
    for action in ["a", "b", "c"] {
        session.perform(action, "completed");
    }
    assert_eq!(alone(&mut session, "{b,a}"), 2);
    assert_eq!(states(&mut session, ["a", "b", "c"]), ["ready", "blocked", "completed"]);
    session.perform("a", "completed");
    session.perform("b", "completed");
    assert_eq!(session.state("c"), "completed");
}

#[test]
fn a_spent_dependency_goes_with_either_of_its_tasks() {
    for id in ["a", "ready", "blocked"] {
        let db = Db::new();
        let mut session = db.connect();
        graph(&mut session);
        alone(&mut session, "{a}");
        assert_eq!(session.delete(&[id]).unwrap(), 1);
        session.perform("b", "completed");
        assert!(session.broken().is_empty(), "{id}: {:?}", session.broken());
        if id == "a" {
            assert_eq!(states(&mut session, ["ready", "blocked"]), ["ready", "ready"]);
        }
    }
}

#[test]
fn a_dependent_that_aborts_and_is_retried_waits_for_the_second_end() {
    let db = Db::new();
    let mut session = db.connect();
    graph(&mut session);
    alone(&mut session, "{a}");
    session.perform("r", "aborted");
    session.run("SELECT taskq.retry_tasks('{ready}')");
    assert_eq!(session.state("ready"), "blocked");
    session.perform("a", "completed");
    assert_eq!(session.state("ready"), "ready");
}
