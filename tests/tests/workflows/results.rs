//! Results: kept with the settled task and handed to its dependents, in the order in which the dependencies were inserted,
//! whatever the order in which they were named or finished. A worker that zips results with its inputs relies on that.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

use super::hold;

/// What `own_tasks(with_results => true)` gives for the next task of the action.
fn results(session: &mut Session, action: &str) -> Option<Value> {
    let query = "SELECT results FROM taskq.own_tasks('w', 1, $1, with_results => true)";
    session.query_one(query, &[&[action].as_slice()]).expect("one task is there to own").get(0)
}

/// The rows of `dependency_results` in the form of the column `results`.
fn rows(session: &mut Session, task_id: &str) -> Value {
    let query = "SELECT COALESCE(jsonb_agg(r), '[]') FROM taskq.dependency_results($1) AS r";
    session.query_one(query, &[&task_id]).unwrap().get(0)
}

#[test]
fn results_come_in_the_order_of_insertion_with_all_that_the_dependencies_left() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "first", "action": "a"}]));
    session
        .insert(json!([
            {"id": "sum", "action": "sum", "depends_on":
                ["barrier", {"id": "failed", "condition": "settled"}, "second", {"id": "first", "condition": "settled"}]},
            {"id": "second", "action": "b"}, {"id": "failed", "action": "c"},
            {"id": "barrier", "action": "d", "spontaneous": true, "depends_on": ["second"]},
        ]))
        .unwrap();
    let grant = session.own_one("c");
    session.give_with("failed", grant.token, "aborted", "status => 'no luck', result => '[0]'").unwrap();
    let grant = session.own_one("b");
    session
        .give_with(
            "second",
            grant.token,
            "completed",
            "result => '{\"b\": 1.10, \"a\": 12345678901234567890123}'",
        )
        .unwrap();
    session.perform("a", "completed");
    let expected = json!([
        {"task_id": "first", "action": "a", "status_code": "completed", "status": null, "result": null},
        {"task_id": "second", "action": "b", "status_code": "completed", "status": null, "result": {"a": 1.2345678901234567e22, "b": 1.1}},
        {"task_id": "failed", "action": "c", "status_code": "aborted", "status": "no luck", "result": [0]},
        {"task_id": "barrier", "action": "d", "status_code": "completed", "status": null, "result": null},
    ]);
    assert_eq!(rows(&mut session, "sum"), expected);
    assert_eq!(results(&mut session, "sum"), Some(expected));
    // To the digit, which serde's numbers cannot show.
    let text: String =
        session.one("SELECT result::text FROM taskq.dependency_results('sum') WHERE task_id = 'second'");
    assert_eq!(text, r#"{"a": 12345678901234567890123, "b": 1.10}"#);
}

#[test]
fn results_come_on_request_only_and_are_an_empty_array_if_there_are_none() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x", "priority": -1}]));
    let plain: Option<Value> = session.one("SELECT results FROM taskq.own_tasks('w', 1, '{x}')");
    assert_eq!(plain, None);
    assert_eq!(results(&mut session, "x"), Some(json!([])));
    assert_eq!(rows(&mut session, "absent"), json!([]));
}

#[test]
fn in_a_batch_each_task_gets_those_of_its_own_dependencies() {
    let (_db, [mut session]) = Db::connected();
    let mut tasks: Vec<Value> = (0..20).map(|i| json!({"id": format!("p{i:02}"), "action": "p"})).collect();
    // Task c of 0..20 runs after all p below c.
    for c in 0..20 {
        let after: Vec<String> = (0..c).rev().map(|i| format!("p{i:02}")).collect();
        tasks.push(json!({"id": format!("c{c:02}"), "action": "c", "depends_on": after}));
    }
    session.insert(json!(tasks)).unwrap();
    let held = hold(&mut session, "p");
    for (i, grant) in held.iter().enumerate().rev() {
        session
            .give_with(&grant.task_id, grant.token, "completed", &format!("result => '{}'", i * i))
            .unwrap();
    }
    let rows = session
        .query(
            "SELECT task_id, jsonb_path_query_array(results, '$[*].result') FROM taskq.own_tasks('w', 100, '{c}', with_results => true)",
            &[],
        )
        .unwrap();
    assert_eq!(rows.len(), 20);
    for row in rows {
        let (id, results): (String, Value) = (row.get(0), row.get(1));
        let c: u64 = id[1..].parse().unwrap();
        assert_eq!(results, json!((0..c).map(|i| i * i).collect::<Vec<_>>()), "{id}");
    }
}

#[test]
fn a_second_try_gets_the_results_again_and_a_retried_dependency_its_new_one() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "p", "action": "p"}, {"id": "c", "action": "c", "depends_on": ["p"]}]));
    let grant = session.own_one("p");
    session.give_with("p", grant.token, "aborted", "result => '\"bad\"'").unwrap();
    session.run("SELECT taskq.retry_tasks('{p}')");
    let grant = session.own_one("p");
    session.give_with("p", grant.token, "completed", "result => '\"good\"'").unwrap();
    for _ in 0..2 {
        let row = session
            .query_one("SELECT results #>> '{0,result}', token FROM taskq.own_tasks('w', 1, '{c}', with_results => true)", &[])
            .unwrap();
        assert_eq!(row.get::<_, &str>(0), "good");
        session.give("c", row.get(1), "pending").unwrap();
    }
}

#[test]
fn a_return_for_another_try_keeps_no_result() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "p", "action": "p"}]));
    let grant = session.own_one("p");
    session.give_with("p", grant.token, "pending", "result => '1', retry_after => '0'").unwrap();
    assert_eq!(session.task("p").unwrap().result, None);
    session.perform("p", "completed");
    assert_eq!(session.task("p").unwrap().result, None);
}

#[test]
fn results_of_dependencies_that_are_gone_are_missing() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session
        .insert(json!([
            {"id": "kept", "action": "p"}, {"id": "short", "action": "p", "retention": "1 minute"},
            {"id": "deleted", "action": "p"}, {"id": "replaced", "action": "p"}, {"id": "last", "action": "last"},
            {"id": "c", "action": "c", "depends_on": ["kept", "short", "deleted", "replaced", "last"]},
        ]))
        .unwrap();
    for grant in hold(&mut session, "p") {
        session.complete(&grant);
    }
    session.delete(&["deleted"]).unwrap();
    session.replace(json!([{"id": "replaced", "action": "p"}])).unwrap();
    session.set_now(Some("2030-01-01 00:02:00Z"));
    session.run("SELECT taskq.maintain()");
    assert_eq!(session.state("short"), "gone");
    session.perform("last", "completed");
    let left = results(&mut session, "c").unwrap();
    let left: Vec<&str> = left.as_array().unwrap().iter().map(|r| r["task_id"].as_str().unwrap()).collect();
    assert_eq!(left, ["kept", "last"]);
}

#[test]
fn children_hand_their_results_on_to_the_dependents_of_their_parent() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "p", "action": "p"}, {"id": "sum", "action": "sum", "depends_on": ["p"]}]),
    );
    let grant = session.own_one("p");
    let children = json!([{"id": "c1", "action": "c"}, {"id": "c2", "action": "c"}]);
    session
        .give_with(
            "p",
            grant.token,
            "completed",
            &format!("result => '0', children_block => true, children => '{children}'"),
        )
        .unwrap();
    session.run("SELECT taskq.return_task(task_id, token, result => to_jsonb(task_id)) FROM taskq.own_tasks('w', 2, '{c}')");
    let results = results(&mut session, "sum").unwrap();
    let results: Vec<&Value> = results.as_array().unwrap().iter().map(|r| &r["result"]).collect();
    assert_eq!(results, [&json!(0), &json!("c1"), &json!("c2")]);
}
