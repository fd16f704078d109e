//! Keys of unique tasks within one array, with a stored task that has one of them: what comes later in the array may take its
//! place, by its key or by its id.
//!
//! Why: what was left out for the sake of a stored task stayed so when another element replaced that. Dependencies went to a task that was
//! gone: refused as though it had never been there, or left out, so that the dependent was ready at once.

use serde_json::{Value, json};
use taskq_tests::{Db, Session, sqlstate};

use crate::unique::{report, unique};

fn replacing(id: &str) -> Value {
    json!({"id": id, "action": "x", "unique_by": {"key": "k", "on_conflict": "replace"}})
}

fn dependent(id: &str, on: &str) -> Value {
    json!({"id": id, "action": "y", "depends_on": [on]})
}

fn dependencies(session: &mut Session) -> Vec<String> {
    session.all("SELECT after || '-' || run FROM taskq.dependencies ORDER BY 1")
}

/// With a task that has the key.
fn start() -> (Db, Session) {
    let (db, [session]) = Db::with_tasks(unique("old", json!("k")));
    (db, session)
}

#[test]
fn a_task_skipped_for_a_stored_one_stands_for_what_replaces_that() {
    let (_db, mut session) = start();
    let skipped = json!({"id": "skipped", "action": "x", "unique_by": "k"});
    let tasks = json!([skipped, dependent("a", "skipped"), replacing("new"), dependent("b", "skipped")]);
    assert_eq!(
        report(&mut session, tasks),
        ["new skipped new", "a inserted", "new replaced old", "b inserted"]
    );
    assert_eq!(dependencies(&mut session), ["new-a", "new-b"]);
    assert_eq!(session.state("a"), "blocked");
    assert!(session.broken().is_empty(), "{:?}", session.broken());
}

#[test]
fn a_dependency_on_a_stored_task_goes_to_the_one_that_takes_its_place() {
    for options in ["", ", if_missing => 'ignore'"] {
        let (_db, mut session) = start();
        let own = json!({"id": "new", "action": "x", "depends_on": ["old"], "unique_by": {"key": "k", "on_conflict": "replace"}});
        let tasks = json!([dependent("a", "old"), own, dependent("b", "new"), dependent("c", "a")]);
        let call = format!("SELECT count(*) FROM taskq.insert_tasks($1{options})");
        assert_eq!(session.query_one(&call, &[&tasks]).unwrap().get::<_, i64>(0), 4);
        assert_eq!(dependencies(&mut session), ["a-c", "new-a", "new-b"]);
        assert!(session.broken().is_empty(), "{:?}", session.broken());
    }
}

#[test]
fn a_key_is_free_whose_task_gives_way_for_its_id() {
    let replaced = |session: &mut Session, tasks: Value| -> Vec<String> {
        let query = "SELECT concat_ws(' ', task_id, outcome, existing_id) \
                     FROM taskq.insert_tasks_report($1, on_conflict => 'replace')";
        session.query(query, &[&tasks]).unwrap().iter().map(|row| row.get(0)).collect()
    };
    let new = json!({"id": "new", "action": "x", "unique_by": "k"});
    let (plain, keyed) =
        (json!({"id": "old", "action": "y"}), json!({"id": "old", "action": "y", "unique_by": "l"}));
    for old in [plain, keyed.clone()] {
        let (_db, mut session) = start();
        assert_eq!(replaced(&mut session, json!([old, new])), ["old replaced old", "new inserted"]);
        let holder: String = session.one("SELECT task_id FROM taskq.unique_keys WHERE key = 'k'");
        assert_eq!(holder, "new");
        assert!(session.broken().is_empty(), "{:?}", session.broken());
        // Not for what comes before that.
        let (_db, mut session) = start();
        assert_eq!(replaced(&mut session, json!([new, old])), ["old skipped old", "old replaced old"]);
        assert!(session.broken().is_empty(), "{:?}", session.broken());
    }
    // It stays where its namesake is itself left out.
    let (_db, mut session) = start();
    session.insert(json!([{"id": "other", "action": "y", "unique_by": "l"}])).unwrap();
    assert_eq!(replaced(&mut session, json!([keyed, new])), ["other skipped other", "old skipped old"]);
    let mut tasks: Vec<String> = session.all("SELECT id FROM taskq.tasks");
    tasks.sort();
    assert_eq!(tasks, ["old", "other"]);
}

/// Each gives way to one that has its id, and whose own key the next one's holder has.
#[test]
fn keys_are_free_one_after_the_other() {
    let key = |id: &str, key: &str, on_conflict: &str| json!({"id": id, "action": "x", "unique_by": {"key": key, "on_conflict": on_conflict}});
    let skip = |id: &str, of: &str| key(id, of, "skip");
    for (stored, tasks) in [
        (
            json!([skip("h2", "k2"), skip("h3", "k3"), skip("h4", "k4")]),
            vec![json!({"id": "h4", "action": "x"}), skip("h3", "k4"), skip("h2", "k3"), skip("new", "k2")],
        ),
        (json!([skip("h2", "k2"), skip("other", "k3")]), vec![key("h2", "k3", "replace"), skip("new", "k2")]),
    ] {
        let (_db, [mut session]) = Db::with_tasks(stored);
        session.replace(Value::from(tasks)).unwrap();
        assert_eq!(session.state("new"), "ready");
        assert!(session.broken().is_empty(), "{:?}", session.broken());
    }
}

#[test]
fn the_id_of_a_task_whose_place_is_taken_is_free_for_what_comes_later() {
    for on_conflict in ["skip", "error"] {
        let arguments = format!("on_conflict => '{on_conflict}'");
        let (_db, mut session) = start();
        let old = json!({"id": "old", "action": "y"});
        assert_eq!(session.insert_with(json!([replacing("new"), old]), &arguments).unwrap(), ["new", "old"]);
        let tasks = "SELECT id || action FROM taskq.tasks ORDER BY 1";
        assert_eq!(session.all::<String>(tasks), ["newx", "oldy"], "{on_conflict}");
        // Not for what comes before.
        let (_db, mut session) = start();
        match session.insert_with(json!([old, replacing("new")]), &arguments) {
            Ok(inserted) => assert_eq!((on_conflict, inserted), ("skip", vec!["new".to_owned()])),
            Err(error) => assert_eq!((on_conflict, sqlstate(&error)), ("error", "TQ002")),
        }
    }
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
