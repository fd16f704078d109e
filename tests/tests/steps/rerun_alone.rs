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
        let (_db, [mut session]) = Db::connected();
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

/// On wrong code they wait again, or `results` have what the second end left.
#[test]
fn dependents_are_tied_to_it_no_more() {
    let (_db, [mut session]) = Db::connected();
    graph(&mut session);
    let held = session.own_one("h");
    alone(&mut session, "{a}");
    let left = "SELECT string_agg(run || ' after ' || after, ', ' ORDER BY run) FROM taskq.dependencies";
    assert_eq!(session.one::<String>(left), "blocked after b");
    assert_eq!(counts(&mut session, "blocked"), ("blocked".to_owned(), 1, 2, 0));
    session.give("held", held.token, "aborted").unwrap();
    session.perform("a", "completed");
    assert_eq!(session.one::<i64>("SELECT taskq.rerun_tasks('{a}')"), 1, "nothing is downstream of it");
    assert_eq!(
        states(&mut session, ["a", "done", "held", "ready", "blocked"]),
        ["ready", "completed", "aborted", "ready", "blocked"]
    );
    let results = "SELECT results::text FROM taskq.own_tasks('w', 1, '{r}', with_results => true)";
    assert_eq!(session.one::<String>(results), "[]");
    // Nor when they start over themselves.
    session.run("SELECT taskq.retry_tasks('{held}'), taskq.rerun_tasks('{done}')");
    assert_eq!(states(&mut session, ["held", "done"]), ["ready", "ready"]);
    session.perform("b", "completed");
    assert_eq!(session.state("blocked"), "ready");
}

#[test]
fn one_that_has_aborted_before_it_had_the_end_is_still_tied_to_it() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "a"}, {"id": "lost", "action": "l", "depends_on": ["a"]},
               {"id": "cancelled", "action": "l", "depends_on": ["a"]}]),
    );
    session.cancel(&["cancelled"]).unwrap();
    session.perform("a", "aborted");
    alone(&mut session, "{a}");
    assert_eq!(states(&mut session, ["lost", "cancelled"]), ["aborted", "aborted"]);
    session.run("SELECT taskq.retry_tasks('{lost,cancelled}')");
    assert_eq!(states(&mut session, ["lost", "cancelled"]), ["blocked", "blocked"]);
    session.perform("a", "completed");
    assert_eq!(states(&mut session, ["lost", "cancelled"]), ["ready", "ready"]);
}

#[test]
fn those_named_together_wait_for_each_other() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b", "depends_on": ["a"]},
        {"id": "c", "action": "c", "depends_on": ["b"]},
    ]));
    for action in ["a", "b", "c"] {
        session.perform(action, "completed");
    }
    assert_eq!(alone(&mut session, "{b,a}"), 2);
    assert_eq!(states(&mut session, ["a", "b", "c"]), ["ready", "blocked", "completed"]);
    session.perform("a", "completed");
    session.perform("b", "completed");
    assert_eq!(session.state("c"), "completed");
}
