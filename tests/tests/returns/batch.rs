//! `return_tasks`: a row for each pair, in input order, each pair for itself.

use postgres::Row;
use serde_json::{Value, json};
use taskq_tests::{Db, Grant, Session, refused};
use uuid::Uuid;

/// `(task_id, status_code, sqlstate)`.
type Line = (Option<String>, Option<String>, Option<String>);

const QUERY: &str = "SELECT task_id, status_code::text, sqlstate FROM taskq.return_tasks";

fn line(row: &Row) -> Line {
    (row.get(0), row.get(1), row.get(2))
}

fn give_all(session: &mut Session, ids: &[Option<&str>], tokens: &[Option<Uuid>], code: &str) -> Vec<Line> {
    let query = format!("{QUERY}($1, $2, $3::text::taskq.status_code)");
    session.query(&query, &[&ids, &tokens, &code]).unwrap().iter().map(line).collect()
}

fn ok(id: &str, code: &str) -> Line {
    (Some(id.to_owned()), Some(code.to_owned()), None)
}

fn bad(id: Option<&str>, sqlstate: &str) -> Line {
    (id.map(str::to_owned), None, Some(sqlstate.to_owned()))
}

/// Tasks a, b, c and d, all held, with max_tries 1 for d.
fn four_held(session: &mut Session) -> Vec<Grant> {
    let task = |id: &str| json!({"id": id, "action": "x"});
    session
        .insert(json!([task("a"), task("b"), task("c"), {"id": "d", "action": "x", "max_tries": 1}]))
        .unwrap();
    session.own("w", 4, &["x"]).unwrap()
}

#[test]
fn one_bad_pair_spoils_neither_the_call_nor_the_others() {
    let (_db, [mut session]) = Db::connected();
    let held = four_held(&mut session);
    let token = |i: usize| Some(held[i].token);
    let ids = [Some("c"), Some("a"), Some("absent"), None, Some("b"), Some("b"), Some("a"), Some("d")];
    let tokens = [token(2), Some(Uuid::new_v4()), token(0), token(0), None, token(1), token(0), token(0)];
    let lines = give_all(&mut session, &ids, &tokens, "completed");
    let expected = [
        ok("c", "completed"),
        bad(Some("a"), "TQ001"),
        bad(Some("absent"), "TQ003"),
        bad(None, "TQ001"),
        bad(Some("b"), "TQ001"),
        ok("b", "completed"),
        ok("a", "completed"),
        bad(Some("d"), "TQ001"),
    ];
    assert_eq!(lines, expected);
    let states = ["a", "b", "c", "d"].map(|id| session.state(id));
    assert_eq!(states, ["completed", "completed", "completed", "in-progress"]);
}

#[test]
fn unequal_lengths_are_22023() {
    let (_db, [mut session]) = Db::connected();
    let held = four_held(&mut session);
    let ids = ["a", "b"];
    let tokens = [held[0].token];
    let error = refused(
        &mut session,
        "22023",
        "",
        "SELECT * FROM taskq.return_tasks($1, $2)",
        &[&&ids[..], &&tokens[..]],
    );
    let detail = error.detail().unwrap_or_default();
    assert!(detail.contains('1') && detail.contains('2'), "the detail has both lengths: {detail}");
}

#[test]
fn the_json_form_has_a_code_and_a_result_for_each() {
    let (_db, [mut session]) = Db::connected();
    let held = four_held(&mut session);
    let returns: Value = json!([
        {"task_id": "b", "token": held[1].token, "status_code": "aborted", "status": "no such file"},
        {"task_id": "a", "token": held[0].token, "result": {"n": 1}},
        {"task_id": "c", "token": held[2].token, "status_code": "pending", "retry_after": "0"},
        {"task_id": "d", "token": held[3].token, "status_code": "pending", "retry_after": "0"},
        {"task_id": "absent", "token": held[3].token},
        {"task_id": "a", "token": Uuid::new_v4()},
    ]);
    let rows = session.query(&format!("{QUERY}($1::jsonb)"), &[&returns]).unwrap();
    let expected = [
        ok("b", "aborted"),
        ok("a", "completed"),
        ok("c", "pending"),
        ok("d", "aborted"),
        bad(Some("absent"), "TQ003"),
        bad(Some("a"), "TQ001"),
    ];
    assert_eq!(rows.iter().map(line).collect::<Vec<_>>(), expected);
    assert_eq!(session.task("a").unwrap().result, Some(json!({"n": 1})));
    assert_eq!(session.task("b").unwrap().status.as_deref(), Some("no such file"));
    assert_eq!(
        ["a", "b", "c", "d"].map(|id| session.state(id)),
        ["completed", "aborted", "ready", "aborted"]
    );
}

#[test]
fn bad_elements_of_the_json_form_are_rows_or_refused_but_never_half_done() {
    let (_db, [mut session]) = Db::connected();
    let held = four_held(&mut session);
    let odd = [
        json!({"task_id": "b", "token": null}),
        json!({"task_id": null, "token": held[1].token}),
        json!({"token": held[1].token}),
        json!({"task_id": "b", "token": "no uuid"}),
        json!({"task_id": "b", "token": held[1].token, "status_code": "in-progress"}),
        json!({"task_id": "b", "token": held[1].token, "status_code": "done"}),
    ];
    for element in odd {
        let returns = json!([element, {"task_id": "a", "token": held[0].token, "status_code": "pending"}]);
        session.run("BEGIN");
        match session.query(&format!("{QUERY}($1::jsonb)"), &[&returns]) {
            Ok(rows) => {
                let lines: Vec<Line> = rows.iter().map(line).collect();
                assert!(lines[0].1.is_none() && lines[0].2.is_some(), "{element}: {lines:?}");
                assert_eq!(lines[1], ok("a", "pending"), "{element}");
            }
            Err(error) => {
                let code = taskq_tests::sqlstate(&error);
                assert!(
                    ["TQ001", "TQ006", "22023", "22004", "22P02"].contains(&code),
                    "{element}: {error:?}"
                );
            }
        }
        session.run("ROLLBACK");
        assert_eq!([session.state("a"), session.state("b")], ["in-progress", "in-progress"]);
    }
}

#[test]
fn hundreds_are_returned_in_one_call_in_input_order() {
    let (_db, [mut session]) =
        Db::with_tasks((0..600).map(|i| json!({"id": i.to_string(), "action": "x"})).collect());
    let mut held = session.own("w", 600, &["x"]).unwrap();
    held.reverse();
    let ids: Vec<Option<&str>> = held.iter().map(|grant| Some(grant.task_id.as_str())).collect();
    let tokens: Vec<Option<Uuid>> = held.iter().map(|grant| Some(grant.token)).collect();
    let lines = give_all(&mut session, &ids, &tokens, "completed");
    let expected: Vec<Line> = (0..600).rev().map(|i| ok(&i.to_string(), "completed")).collect();
    assert_eq!(lines, expected);
}
