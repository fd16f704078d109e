//! `return_and_own_tasks`: `return_tasks`, and then `own_tasks`, as one call.
//!
//! On wrong code a refused return undoes the others or is told behind the grants; what the returns free is only there for
//! the next call; a call that is refused as a whole has returned something; or one of the two does less than it does alone.

use postgres::Row;
use serde_json::{Value, json};
use taskq_tests::session::Answer;
use taskq_tests::{Db, Grant, Session, refused};
use uuid::Uuid;

const JSON: &str = "SELECT task_id, token, sqlstate FROM taskq.return_and_own_tasks('w', $1::jsonb, $2, $3)";
const PAIRS: &str =
    "SELECT task_id, token, sqlstate FROM taskq.return_and_own_tasks('w', $1::text[], $2::uuid[], $3, $4)";

/// What a call came back with, in its order: a refused return, or a grant.
#[derive(Debug, PartialEq)]
pub enum Line {
    Refused(Option<String>, String),
    Granted(String, Uuid),
}

fn line(row: &Row) -> Line {
    match (row.get::<_, Option<String>>(2), row.get::<_, Option<Uuid>>(1)) {
        (Some(sqlstate), None) => Line::Refused(row.get(0), sqlstate),
        (None, Some(token)) => Line::Granted(row.get(0), token),
        other => panic!("a row is one or the other: {other:?}"),
    }
}

pub fn call(session: &mut Session, returns: &Value, max: i32, actions: &[&str]) -> Answer<Vec<Line>> {
    Ok(session.query(JSON, &[returns, &max, &actions])?.iter().map(line).collect())
}

/// All that the call was granted, where nothing was refused.
pub fn granted(session: &mut Session, returns: &Value, max: i32, actions: &[&str]) -> Vec<(String, Uuid)> {
    let lines = call(session, returns, max, actions).unwrap();
    let grant = |line| match line {
        Line::Granted(id, token) => (id, token),
        refused => panic!("{refused:?} for {returns}"),
    };
    lines.into_iter().map(grant).collect()
}

fn ids(grants: &[(String, Uuid)]) -> Vec<&str> {
    grants.iter().map(|(id, _)| id.as_str()).collect()
}

fn completed(grant: &Grant) -> Value {
    json!([{"task_id": grant.task_id, "token": grant.token}])
}

fn given_back(id: &str, token: Uuid) -> Value {
    json!([{"task_id": id, "token": token, "status_code": "pending", "retry_after": "0"}])
}

fn tasks(ids: &[&str], action: &str) -> Value {
    ids.iter().map(|id| json!({"id": id, "action": action})).collect()
}

#[test]
fn refused_returns_come_first_and_spoil_nothing() {
    let (_db, [mut session]) = Db::with_tasks(tasks(&["a", "b", "c", "d", "e"], "x"));
    let held = session.own("w", 3, &["x"]).unwrap();
    let returns = json!([
        {"task_id": "absent", "token": held[0].token},
        {"task_id": "a", "token": held[0].token, "result": {"n": 1}},
        {"task_id": "b", "token": Uuid::new_v4()},
        {"task_id": "c", "token": held[2].token, "status_code": "aborted", "status": "no"},
        {"task_id": "a", "token": held[0].token},
        {"token": held[1].token},
        {"task_id": "b", "token": "no uuid"},
    ]);
    let lines = call(&mut session, &returns, 10, &["x"]).unwrap();
    let refused = |id: Option<&str>, code: &str| Line::Refused(id.map(str::to_owned), code.to_owned());
    let expected = [
        refused(Some("absent"), "TQ003"),
        refused(Some("b"), "TQ001"),
        refused(Some("a"), "TQ001"),
        refused(None, "TQ001"),
        refused(Some("b"), "TQ001"),
    ];
    assert_eq!(lines[..5], expected);
    let owned: Vec<&str> = lines[5..]
        .iter()
        .map(|line| match line {
            Line::Granted(id, _) => id.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(owned, ["d", "e"]);
    assert_eq!(session.task("a").unwrap().result, Some(json!({"n": 1})));
    let states = ["a", "b", "c", "d"].map(|id| session.state(id));
    assert_eq!(states, ["completed", "in-progress", "aborted", "in-progress"]);
}

#[test]
fn the_other_form_completes_pairs() {
    let (_db, [mut session]) = Db::with_tasks(tasks(&["a", "b", "c"], "x"));
    let held = session.own("w", 2, &["x"]).unwrap();
    let ids = [Some("b"), None, Some("a"), Some("b")];
    let tokens = [Some(held[1].token), Some(held[0].token), None, Some(held[1].token)];
    let rows = session.query(PAIRS, &[&&ids[..], &&tokens[..], &5, &["x"].as_slice()]).unwrap();
    let lines: Vec<Line> = rows.iter().map(line).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[0], Line::Refused(None, "TQ001".to_owned()));
    assert_eq!(lines[1], Line::Refused(Some("a".to_owned()), "TQ001".to_owned()));
    assert_eq!(lines[2], Line::Refused(Some("b".to_owned()), "TQ001".to_owned()));
    assert!(matches!(&lines[3], Line::Granted(id, _) if id == "c"), "{lines:?}");
    assert_eq!(["a", "b"].map(|id| session.state(id)), ["in-progress", "completed"]);
}

/// With nothing to return it is `own_tasks`, and with nothing to own `return_tasks`.
#[test]
fn either_half_may_be_empty() {
    let (_db, [mut session]) = Db::with_tasks(tasks(&["a", "b"], "x"));
    assert_eq!(ids(&granted(&mut session, &json!([]), 1, &["x"])), ["a"]);
    assert_eq!(granted(&mut session, &json!([]), 0, &["x"]), []);
    assert_eq!(granted(&mut session, &json!([]), 5, &[]), []);
    let rows = session.query(PAIRS, &[&Vec::<String>::new(), &Vec::<Uuid>::new(), &1, &["x"].as_slice()]);
    let held: Vec<Line> = rows.unwrap().iter().map(line).collect();
    let [Line::Granted(id, token)] = &held[..] else { panic!("{held:?}") };
    let returns = json!([{"task_id": id, "token": token}]);
    assert_eq!(granted(&mut session, &returns, 0, &["x"]), []);
    assert_eq!(session.state("b"), "completed");
}

/// Whatever was free only by the return: dependents over several levels, a new child, a slot, a merge key, the place of a
/// group, a turn, a task given back.
#[test]
fn what_the_returns_free_can_be_owned_by_the_call() {
    let (_db, [mut session]) = Db::connected();
    let next = |session: &mut Session, returns: Value| {
        let grants = granted(session, &returns, 10, &["x", "born"]);
        assert_eq!(grants.len(), 1, "{returns}: {grants:?}");
        grants.into_iter().next().unwrap()
    };
    let done = |(id, token): &(String, Uuid)| json!([{"task_id": id, "token": token}]);

    session
        .insert(json!([
            {"id": "p", "action": "x"}, {"id": "mark", "action": "-", "spontaneous": true, "depends_on": ["p"]},
            {"id": "c", "action": "x", "depends_on": ["mark"]},
        ]))
        .unwrap();
    let parent = next(&mut session, json!([]));
    let child = next(&mut session, done(&parent));
    assert_eq!(child.0, "c");

    // The first task that there ever was of its action, in the lane of a group with a limit.
    session.run("SELECT taskq.set_group('g', max_concurrency => 1)");
    let birth = json!([{"task_id": child.0, "token": child.1,
        "children": [{"id": "born", "action": "born", "group_id": "g"}]}]);
    let born = next(&mut session, birth);
    assert_eq!(born.0, "born");
    session.insert(json!([{"id": "second", "action": "born", "group_id": "g"}])).unwrap();
    let second = next(&mut session, done(&born));
    assert_eq!(second.0, "second");

    session.run("SELECT taskq.set_action('x', max_concurrency => 1)");
    session.insert(tasks(&["s1", "s2"], "x")).unwrap();
    let first = next(&mut session, done(&second));
    assert_eq!(first.0, "s1");
    let slot = next(&mut session, done(&first));
    assert_eq!(slot.0, "s2");
    session.run("SELECT taskq.set_action('x', clear => '{max_concurrency}')");

    session.insert(json!([{"id": "k1", "action": "x", "merge_key": "k"}])).unwrap();
    let leader = next(&mut session, done(&slot));
    session.insert(json!([{"id": "k2", "action": "x", "merge_key": "k"}])).unwrap();
    assert!(session.own("w", 1, &["x"]).unwrap().is_empty(), "its key is busy");
    let follower = next(&mut session, done(&leader));
    assert_eq!(follower.0, "k2");

    session.run("SELECT taskq.set_action('x', fair => true, max_per_group => 1)");
    let lanes =
        json!([{"id": "g1", "action": "x", "group_id": "h"}, {"id": "g2", "action": "x", "group_id": "h"}]);
    session.insert(lanes).unwrap();
    let one = next(&mut session, done(&follower));
    let other = next(&mut session, done(&one));
    assert_eq!((one.0.as_str(), other.0.as_str()), ("g1", "g2"));

    let again = next(&mut session, given_back(&other.0, other.1));
    assert_eq!(again.0, "g2");
    assert_ne!(again.1, other.1, "a grant of its own");
    assert_eq!(session.task("g2").unwrap().num_tries, 2);
    let lines = call(&mut session, &done(&other), 0, &["x"]).unwrap();
    assert_eq!(lines, [Line::Refused(Some("g2".to_owned()), "TQ001".to_owned())]);
    assert_eq!(granted(&mut session, &done(&again), 10, &["x", "born"]), []);
}

#[test]
fn a_task_given_back_goes_to_the_end_before_the_call_owns() {
    let (_db, [mut session]) = Db::with_tasks(tasks(&["a", "b", "c"], "x"));
    let a = session.own_one("x");
    assert_eq!(ids(&granted(&mut session, &given_back("a", a.token), 2, &["x"])), ["b", "c"]);
    assert_eq!(session.state("a"), "ready");
}

/// A deadline that has passed is looked after when the call owns, not before it returns: what was late, and would have been
/// aborted for its tries, is good.
#[test]
fn a_late_return_comes_before_upkeep() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "late", "action": "x", "max_tries": 1}, {"id": "lost", "action": "x", "max_tries": 1}]),
    );
    let held = session.own_with("w", 2, &["x"], "lease => '0'").unwrap();
    session.run("SELECT pg_sleep(0.01)");
    assert_eq!(granted(&mut session, &completed(&held[0]), 5, &["x"]), []);
    assert_eq!(["late", "lost"].map(|id| session.state(id)), ["completed", "aborted"]);
}

#[test]
fn the_columns_are_those_of_own_tasks() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "p", "action": "x"},
        {"id": "c", "action": "x", "depends_on": ["p"], "body": {"n": 1}, "metadata": {"m": 2}, "priority": 7},
    ]));
    let parent = session.own_one("x");
    let returns =
        json!([{"task_id": "p", "token": parent.token, "result": [3]}, {"task_id": "?", "token": null}]);
    for (save, with_results) in [("ROLLBACK", "false"), ("COMMIT", "true")] {
        session.run("BEGIN");
        let rows = session
            .query(
                &format!(
                    "SELECT to_jsonb(r) - 'token', token IS NULL, action_deadline > now() \
                       FROM taskq.return_and_own_tasks('w', $1::jsonb, 5, '{{x}}', '1 hour', with_results => {with_results}) AS r"
                ),
                &[&returns],
            )
            .unwrap();
        let [refused, granted] = &rows[..] else { panic!("{} rows", rows.len()) };
        let mut refused: Value = refused.get(0);
        assert_eq!(refused["sqlstate"].take(), "TQ003");
        assert_eq!(refused["task_id"].take(), "?");
        assert!(refused.as_object().unwrap().values().all(Value::is_null), "{refused}");
        assert!(!granted.get::<_, bool>(1) && granted.get::<_, bool>(2));
        let mut granted: Value = granted.get(0);
        granted["action_deadline"].take();
        let mut expected = json!({
            "task_id": "c", "action": "x", "body": "{\"n\": 1}", "body_json": {"n": 1}, "num_tries": 1,
            "num_failures": 0, "action_deadline": null, "checkpoint": null, "results": null, "priority": 7,
            "metadata": {"m": 2}, "steps": null, "incomplete": false, "sqlstate": null,
        });
        if with_results == "true" {
            expected["results"] = json!([{"task_id": "p", "action": "x", "status_code": "completed", "status": null, "result": [3]}]);
        }
        assert_eq!(granted, expected);
        session.run(save);
    }
    let columns = |session: &mut Session, query: &str| {
        let statement = session.prepare(query).unwrap();
        statement.columns().iter().map(|c| (c.name().to_owned(), c.type_().clone())).collect::<Vec<_>>()
    };
    let mut own = columns(&mut session, "SELECT * FROM taskq.own_tasks('w', 1, '{x}')");
    own.push(("sqlstate".to_owned(), postgres::types::Type::TEXT));
    for form in ["'[]'::jsonb", "'{}', '{}'"] {
        let query = format!("SELECT * FROM taskq.return_and_own_tasks('w', {form}, 1, '{{x}}')");
        assert_eq!(columns(&mut session, &query), own);
    }
}

/// Whatever is wrong with one half leaves the other undone.
#[test]
fn bad_input_changes_nothing() {
    let (_db, [mut session]) = Db::with_tasks(tasks(&["a", "b"], "x"));
    let held = session.own_one("x");
    let good = completed(&held).to_string();
    let token = held.token;
    let pairs = format!("'{{a}}', '{{{token}}}'");
    for (sqlstate, arguments) in [
        ("22004", format!("NULL, '{good}', 1, '{{x}}'")),
        ("22023", format!("'', '{good}', 1, '{{x}}'")),
        ("22004", "'w', NULL::jsonb, 1, '{x}'".to_owned()),
        ("TQ006", format!("'w', '{{\"task_id\": \"a\", \"token\": \"{token}\"}}'::jsonb, 1, '{{x}}'")),
        ("TQ006", format!("'w', '[{{\"task_id\": \"a\", \"token\": \"{token}\"}}, 7]'::jsonb, 1, '{{x}}'")),
        (
            "TQ006",
            format!(
                "'w', '[{{\"task_id\": \"a\", \"token\": \"{token}\", \"code\": 1}}]'::jsonb, 1, '{{x}}'"
            ),
        ),
        (
            "22023",
            format!(
                "'w', '[{{\"task_id\": \"a\", \"token\": \"{token}\", \"status_code\": \"done\"}}]'::jsonb, 1, '{{x}}'"
            ),
        ),
        (
            "TQ006",
            format!(
                "'w', '[{{\"task_id\": \"a\", \"token\": \"{token}\", \"children\": [{{}}]}}]'::jsonb, 1, '{{x}}'"
            ),
        ),
        (
            "TQ002",
            format!(
                "'w', '[{{\"task_id\": \"a\", \"token\": \"{token}\", \"children\": [{{\"id\": \"b\", \"action\": \"x\"}}]}}]'::jsonb, 1, '{{x}}'"
            ),
        ),
        (
            "22023",
            format!(
                "'w', '[{{\"task_id\": \"a\", \"token\": \"{token}\", \"delay_workgroup\": \"1 s\"}}]'::jsonb, 1, '{{x}}'"
            ),
        ),
        ("22004", format!("'w', '{good}', NULL, '{{x}}'")),
        ("22023", format!("'w', '{good}', -1, '{{x}}'")),
        ("22004", format!("'w', '{good}', 1, NULL")),
        ("22004", format!("'w', '{good}', 1, '{{x,NULL}}'")),
        ("22023", format!("'w', '{good}', 1, '{{x}}', '-1 second'")),
        ("22004", format!("'w', NULL, '{{{token}}}'::uuid[], 1, '{{x}}'")),
        ("22004", "'w', '{a}', NULL::uuid[], 1, '{x}'".to_owned()),
        ("22023", format!("'w', '{{a,b}}', '{{{token}}}', 1, '{{x}}'")),
        ("22023", format!("'w', {pairs}, -1, '{{x}}'")),
        ("22023", format!("'w', {pairs}, 1, '{{x}}', '-1 second'")),
    ] {
        let query = format!("SELECT * FROM taskq.return_and_own_tasks({arguments})");
        refused(&mut session, sqlstate, "", &query, &[]);
    }
    assert_eq!(["a", "b"].map(|id| session.state(id)), ["in-progress", "ready"]);
    session.run("BEGIN READ ONLY");
    let error = call(&mut session, &json!([]), 1, &["x"]).unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&error), "25006");
    session.run("ROLLBACK");
}

#[test]
fn a_hundred_thousand_are_returned_and_owned_in_one_call() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('action', 'x'))
                                                    FROM generate_series(1, 200000)))",
    );
    session
        .run("CREATE TEMPORARY TABLE held AS SELECT task_id, token FROM taskq.own_tasks('w', 100000, '{x}')");
    let count: String = session.one(
        "SELECT concat_ws(' ', count(*), count(DISTINCT r.task_id), count(sqlstate), count(h.task_id))
           FROM (SELECT array_agg(task_id) AS ids, array_agg(token) AS tokens FROM held) AS a,
                taskq.return_and_own_tasks('w', a.ids, a.tokens, 100000, '{x}') AS r
           LEFT JOIN held AS h ON h.task_id = r.task_id",
    );
    assert_eq!(count, "100000 100000 0 0");
    assert_eq!(
        session.all::<String>("SELECT state || ' ' || count FROM taskq.count_tasks() ORDER BY 1"),
        ["completed 100000", "in-progress 100000"]
    );
}
