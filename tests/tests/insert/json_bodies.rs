//! Bodies that are JSON: how they are given, stored and handed out.
//!
//! Why: most bodies are JSON, and casting each of them by hand, in both directions, is where they break. On wrong code
//! a literal is ambiguous, a body that is no JSON is an error for a query that looks at all tasks, or a string gets
//! quotes.

use serde_json::{Value, json};
use taskq_tests::Db;

/// Texts, and what they are as JSON.
const BODIES: &[(&str, Option<&str>)] = &[
    (r#"{"a": [1, 2.50, null]}"#, Some(r#"{"a": [1, 2.50, null]}"#)),
    ("  [1]  ", Some("[1]")),
    ("5", Some("5")),
    (r#""quoted""#, Some(r#""quoted""#)),
    ("null", Some("null")),
    ("true", Some("true")),
    ("words", None),
    ("", None),
    ("{", None),
    ("{\"a\": 1} trailing", None),
    ("NaN", None),
    (r#""\u0000""#, None),
    ("1e400000", None),
    (r#"{"a": 1, "a": 2}"#, Some(r#"{"a": 2}"#)),
];

#[test]
fn what_is_json_is_handed_out_as_json_and_what_is_none_is_null() {
    let (_db, [mut session]) = Db::connected();
    for (body, expected) in BODIES {
        session.query("SELECT taskq.insert_task('a', 'x', $1::text)", &[body]).unwrap();
        let row = session.query_one("SELECT body, body_json::text FROM taskq.tasks", &[]).unwrap();
        assert_eq!((row.get::<_, &str>(0), row.get::<_, Option<&str>>(1)), (*body, *expected), "in tasks");
        let row = session
            .query_one("SELECT body, body_json::text FROM taskq.own_tasks('w', 1, '{x}')", &[])
            .unwrap();
        assert_eq!(
            (row.get::<_, &str>(0), row.get::<_, Option<&str>>(1)),
            (*body, *expected),
            "in own_tasks"
        );
        session.cancel(&["a"]).unwrap();
        session.delete(&["a"]).unwrap();
    }
    session.run("SELECT taskq.insert_task('none', 'x')");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE body_json IS NULL"), 1);
    session.run("SELECT * FROM taskq.own_tasks('w', 1, '{x}')");
}

#[test]
fn a_jsonb_body_is_stored_as_insert_tasks_stores_one() {
    let (_db, [mut session]) = Db::connected();
    for (n, body) in
        [json!({"a": 1}), json!("a string"), json!([1, "b"]), json!(5), json!(true), Value::Null, json!("")]
            .into_iter()
            .enumerate()
    {
        let (one, many) = (format!("one {n}"), format!("many {n}"));
        session.query("SELECT taskq.insert_task($1, 'x', $2::jsonb)", &[&one, &body]).unwrap();
        session.insert(json!([{"id": many, "action": "x", "body": body}])).unwrap();
        let bodies: Vec<Option<String>> = session
            .query("SELECT body FROM taskq.tasks WHERE id IN ($1, $2)", &[&one, &many])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(
            bodies[0].as_ref().map(|b| b.replace(' ', "")),
            bodies[1].as_ref().map(|b| b.replace(' ', "")),
            "{body}"
        );
        if body == json!("a string") {
            assert_eq!(bodies[0].as_deref(), Some("a string"));
        }
        if body.is_null() {
            assert_eq!(bodies[0], None);
        }
    }
}

/// What has no type is a text, whichever way it comes: as a literal, NULL, or a parameter that the driver sends so.
#[test]
fn what_has_no_type_is_a_text() {
    let (_db, [mut session]) = Db::connected();
    for call in [
        "insert_task('1', 'x', '\"s\"')",
        "insert_task('2', 'x', NULL)",
        "insert_task('3', 'x')",
        "insert_task(id => '4', action => 'x', body => '{}')",
        "insert_task(id => '5', action => 'x', body => NULL, priority => 1)",
        "insert_task('6', 'x', '\"s\"'::varchar)",
        "insert_task('7', 'x', body => '\"s\"'::jsonb, delay => '0')",
        "insert_task('8', 'x', to_jsonb(ARRAY[1]))",
    ] {
        session.run(&format!("SELECT taskq.{call}"));
    }
    session.run("PREPARE p AS SELECT taskq.insert_task($1, $2, $3); EXECUTE p('9', 'x', '\"s\"')");
    let bodies: Vec<Option<String>> = session
        .query("SELECT body FROM taskq.tasks ORDER BY id", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let bodies: Vec<Option<&str>> = bodies.iter().map(Option::as_deref).collect();
    let text = Some("\"s\"");
    assert_eq!(bodies, [text, None, None, Some("{}"), None, text, Some("s"), Some("[1]"), text]);
}

#[test]
fn unique_by_the_body_sees_what_is_stored() {
    let (_db, [mut session]) = Db::connected();
    for body in ["'text'::text", "'\"text\"'::jsonb"] {
        session.run(&format!("SELECT taskq.insert_task(NULL, 'x', {body}, unique_by => 'true')"));
    }
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks"), 1);
}

/// PostgreSQL's reader of jsonb doubles its list of elements and asks for a gigabyte: an internal error, which is the body's.
/// On wrong code each claim that comes to the task fails, and nothing of its action is granted any more.
#[test]
#[ignore = "long"]
fn a_body_that_is_too_large_for_jsonb_is_none_and_its_task_is_granted() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'x', body => '[' || repeat('1,', 17000000) || '1]')");
    let row = session
        .query_one("SELECT length(body), body_json IS NULL FROM taskq.own_tasks('w', 1, '{x}')", &[])
        .unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, bool>(1)), (34_000_003, true));
}
