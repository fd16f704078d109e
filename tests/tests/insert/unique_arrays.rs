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
    let db = Db::new();
    let mut session = db.connect();
    session.insert(unique("old", json!("k"))).unwrap();
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
        for tasks in [json!([old, new]), json!([new, old])] {
            let (_db, mut session) = start();
            let mut got = replaced(&mut session, tasks);
            got.sort();
            assert_eq!(got, ["new inserted", "old replaced old"]);
            let holder: String = session.one("SELECT task_id FROM taskq.unique_keys WHERE key = 'k'");
            assert_eq!(holder, "new");
            assert!(session.broken().is_empty(), "{:?}", session.broken());
        }
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
fn keys_are_free_one_after_the_other_in_whatever_order_they_stand() {
    let key = |id: &str, key: &str, on_conflict: &str| json!({"id": id, "action": "x", "unique_by": {"key": key, "on_conflict": on_conflict}});
    let skip = |id: &str, of: &str| key(id, of, "skip");
    for (stored, tasks) in [
        (
            json!([skip("h2", "k2"), skip("h3", "k3"), skip("h4", "k4")]),
            vec![json!({"id": "h4", "action": "x"}), skip("h3", "k4"), skip("h2", "k3"), skip("new", "k2")],
        ),
        (json!([skip("h2", "k2"), skip("other", "k3")]), vec![key("h2", "k3", "replace"), skip("new", "k2")]),
    ] {
        let mut ends = Vec::new();
        for backwards in [false, true] {
            let db = Db::new();
            let mut session = db.connect();
            session.insert(stored.clone()).unwrap();
            let mut tasks = tasks.clone();
            if backwards {
                tasks.reverse();
            }
            session.replace(Value::from(tasks)).unwrap();
            ends.push(
                session.all::<String>(
                    "SELECT key || ' ' || task_id FROM taskq.unique_keys WHERE held ORDER BY 1",
                ),
            );
            assert_eq!(session.state("new"), "ready");
            assert!(session.broken().is_empty(), "{:?}", session.broken());
        }
        assert_eq!(ends[0], ends[1]);
    }
}

#[test]
fn what_was_to_be_skipped_for_a_task_that_is_replaced_is_refused_and_not_lost() {
    let (_db, mut session) = start();
    let tasks = json!([replacing("new"), {"id": "old", "action": "y"}]);
    let error = session.insert_with(tasks, "on_conflict => 'skip'").unwrap_err();
    assert_eq!(sqlstate(&error), "TQ002");
    assert_eq!(session.all::<String>("SELECT id FROM taskq.tasks"), ["old"]);
    session.insert_with(json!([replacing("new")]), "on_conflict => 'skip'").unwrap();
    session.insert_with(json!([{"id": "old", "action": "y"}]), "on_conflict => 'skip'").unwrap();
    assert_eq!(session.all::<String>("SELECT id || action FROM taskq.tasks ORDER BY 1"), ["newx", "oldy"]);
}
