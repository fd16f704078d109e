//! `with_steps`: what comes with a grant.

use serde_json::{Value, json};
use taskq_tests::session::AT_ONCE;
use taskq_tests::{Db, Session};

use crate::save;

/// Gives everything back, and owns it with such a call: ids and steps.
fn owned(session: &mut Session, call: &str) -> Vec<(String, Option<Value>)> {
    let rows =
        session.query(&format!("SELECT task_id, steps, token FROM taskq.{call} ORDER BY 1"), &[]).unwrap();
    let owned: Vec<(String, Option<Value>)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    for row in &rows {
        if let Some(token) = row.get::<_, Option<uuid::Uuid>>(2) {
            session.give_with(row.get(0), token, "pending", AT_ONCE).unwrap();
        }
    }
    owned
}

#[test]
fn steps_come_as_an_object_if_they_are_asked_for() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]));
    assert_eq!(
        owned(&mut session, "own_tasks('w', 5, '{x}', with_steps => true)"),
        [("a".to_owned(), Some(json!({}))), ("b".to_owned(), Some(json!({}))),]
    );
    let grant = session.own_one("x");
    save(&mut session, &grant, "one", Some(json!({"n": [1]}))).unwrap();
    save(&mut session, &grant, "two", None).unwrap();
    session.give_with(&grant.task_id, grant.token, "pending", AT_ONCE).unwrap();
    let saved = json!({"one": {"n": [1]}, "two": null});
    for call in [
        "own_tasks('w', 5, '{x}', with_steps => true)",
        "own_tasks('w', 5, '{x}', NULL, '0', false, true)",
        "return_and_own_tasks('w', '[]', 5, '{x}', with_steps => true)",
        "return_and_own_tasks('w', '[]', 5, '{x}', NULL, true, true)",
        "return_and_own_tasks('w', '{}', '{}', 5, '{x}', with_steps => true)",
    ] {
        let steps = [("a".to_owned(), Some(saved.clone())), ("b".to_owned(), Some(json!({})))];
        assert_eq!(owned(&mut session, call), steps, "{call}");
    }
    for call in [
        "own_tasks('w', 5, '{x}')",
        "own_tasks('w', 5, '{x}', with_steps => NULL)",
        "own_tasks('w', 5, '{x}', with_results => true)",
        "return_and_own_tasks('w', '[]', 5, '{x}')",
        "return_and_own_tasks('w', '{}', '{}', 5, '{x}')",
    ] {
        assert_eq!(owned(&mut session, call), [("a".to_owned(), None), ("b".to_owned(), None)], "{call}");
    }
}

#[test]
fn what_is_incomplete_stands_behind_it_and_then_the_sqlstate() {
    let (_db, [mut session]) = Db::connected();
    for (call, last) in [
        ("own_tasks('w', 0, '{x}')", ["steps", "incomplete"]),
        ("return_and_own_tasks('w', '[]', 0, '{x}')", ["incomplete", "sqlstate"]),
        ("return_and_own_tasks('w', '{}', '{}', 0, '{x}')", ["incomplete", "sqlstate"]),
    ] {
        let statement = session.prepare(&format!("SELECT * FROM taskq.{call}")).unwrap();
        let names: Vec<&str> = statement.columns().iter().map(|column| column.name()).collect();
        assert!(names.ends_with(&last), "{call}: {names:?}");
    }
}

#[test]
fn a_return_that_is_refused_has_none() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let call = "SELECT task_id, steps, sqlstate FROM taskq.return_and_own_tasks('w', '{nix}', '{00000000-0000-0000-0000-000000000001}', 1, '{x}', with_steps => true)";
    let rows = session.query(call, &[]).unwrap();
    let rows: Vec<(String, Option<Value>, Option<String>)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert_eq!(rows[0].1, None);
    assert!(rows[0].2.is_some());
    assert_eq!(rows[1], ("a".to_owned(), Some(json!({})), None));
}

#[test]
fn a_return_and_the_next_grant_of_the_same_task_go_along() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = session.own_one("x");
    save(&mut session, &grant, "one", Some(json!(1))).unwrap();
    let returns =
        json!([{"task_id": "a", "token": grant.token, "status_code": "pending", "retry_after": "0"}]);
    let call = "SELECT steps FROM taskq.return_and_own_tasks('w', $1::jsonb, 1, '{x}', with_steps => true)";
    assert_eq!(session.query_one(call, &[&returns]).unwrap().get::<_, Value>(0), json!({"one": 1}));
}
