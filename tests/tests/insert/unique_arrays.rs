//! Keys of unique tasks within one array, with a stored task that has one of them: what comes later in the array may take its
//! place, by its key or by its id.
//!
//! Why: what was left out for the sake of a stored task stayed so when another element replaced that. Dependencies went to a task that was
//! gone: refused as though it had never been there, or left out, so that the dependent was ready at once.

use serde_json::{Value, json};
use taskq_tests::{Db, Session, sqlstate};

use crate::unique::{report, unique};

fn dependencies(session: &mut Session) -> Vec<String> {
    session.all("SELECT after || '-' || run FROM taskq.dependencies ORDER BY 1")
}

/// With a task that has the key.
fn start() -> (Db, Session) {
    let (db, [session]) = Db::with_tasks(unique("old", json!("k")));
    (db, session)
}

/// On wrong code the dependency was dropped, and what was to wait began at once.
#[test]
fn what_was_to_run_after_an_element_runs_after_the_one_that_takes_its_place() {
    let element = |id: &str, before: Value| json!({"id": id, "action": "x", "to_signal_after": before, "unique_by": {"key": "l", "on_conflict": "replace"}});
    let (_db, mut session) = start();
    session.insert(json!([{"id": "stored", "action": "y"}])).unwrap();
    let settled = json!([{"id": "stored", "condition": "settled"}, "b", "new"]);
    let tasks = json!([element("one", settled), {"id": "b", "action": "y"}, element("two", json!(["stored"])), element("new", json!([]))]);
    assert_eq!(
        report(&mut session, tasks),
        ["new skipped new", "b inserted", "new skipped new", "new inserted"]
    );
    assert_eq!(dependencies(&mut session), ["new-b", "new-stored"]);
    // Of two conditions that of the newest counts.
    assert_eq!(
        session.one::<String>("SELECT condition::text FROM taskq.dependencies WHERE run = 'stored'"),
        "completed"
    );
    assert_eq!([session.state("stored"), session.state("b")], ["blocked", "blocked"]);
    // It is refused as if the successor had said so.
    session.cancel(&["stored", "new"]).unwrap();
    let tasks = json!([element("three", json!(["stored"])), element("four", json!([]))]);
    assert_eq!(sqlstate(&session.insert(tasks).unwrap_err()), "TQ005");
    assert!(session.broken().is_empty(), "{:?}", session.broken());
}

/// On wrong code it counted as blocked, and two tasks came to hold the key.
#[test]
fn an_element_counts_as_ready_if_what_was_to_come_before_it_is_left_out() {
    let (_db, mut session) = start();
    let ready = |id: &str, on_conflict: &str| json!({"id": id, "action": "x", "unique_by": {"key": "l", "states": ["ready"], "on_conflict": on_conflict}});
    let out = json!({"id": "out", "action": "x", "unique_by": "k", "to_signal_after": ["one"]});
    let tasks = json!([out, ready("one", "skip"), ready("two", "replace")]);
    assert_eq!(report(&mut session, tasks), ["old skipped old", "two skipped two", "two inserted"]);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.unique_keys WHERE held"), 2);
}

/// On wrong code the call was refused for a dependency at which nothing looks.
#[test]
fn what_an_element_names_that_is_left_out_for_its_id_may_have_begun() {
    let (_db, mut session) = start();
    session.insert(json!([{"id": "held", "action": "y"}])).unwrap();
    session.own_one("y");
    let tasks = json!([{"id": "n", "action": "z"}, {"id": "n", "action": "z", "to_signal_after": ["held"]}]);
    assert_eq!(session.insert_with(tasks, "on_conflict => 'skip'").unwrap(), ["n"]);
}
