//! What another transaction commits while an insertion waits for it: the insertion comes after it, and goes by what it has done.
//!
//! Why: what had been looked up before the wait was believed after it. Dependencies on tasks that had come in between were left out, or
//! refused as missing; elements were left out for tasks that had gone.

use serde_json::{Value, json};
use taskq_tests::{Db, Progress, Session};

/// Runs the statements of one session, then the call of another, which waits for the end of the first, and returns what it gives.
fn call_beside(db: &Db, first: &str, begin: &str, query: &str, tasks: &Value) -> Result<Vec<String>, String> {
    let (mut one, mut other) = (db.connect(), db.connect());
    one.run(&format!("BEGIN; {first}"));
    other.run(begin);
    let (query, tasks) = (query.to_owned(), tasks.clone());
    let call = other.background(move |session| {
        let rows = session.query(&query, &[&tasks]).map_err(|error| format!("{error:?}"))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    });
    assert_eq!(call.settle_down(&mut db.connect()), Progress::Blocked, "{first}");
    one.run("COMMIT");
    let (mut other, answer) = call.join();
    if !begin.is_empty() {
        other.run("COMMIT");
    }
    assert_eq!(other.broken(), Vec::<String>::new());
    answer
}

/// Below a savepoint a call cannot begin anew.
const BEGINNINGS: [&str; 3] = ["", "BEGIN", "BEGIN; SAVEPOINT s"];

fn with_tasks() -> (Db, Session) {
    let (db, [session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "p", "action": "parent"}]));
    (db, session)
}

fn edges(session: &mut Session) -> Vec<String> {
    session.all("SELECT after || '-' || run FROM taskq.dependencies ORDER BY 1")
}

/// What has come by the time the call goes on, in which way it waits, by which call, and with which arguments.
fn waits() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let y = "SELECT taskq.insert_task('y', 'x', merge_key => 'm')";
    let taken = |by: &str| format!("{y}; SELECT taskq.insert_task('id', 'x'){by}");
    let an_id: &str = taken("").leak();
    let a_free_id: &str = taken("; SELECT taskq.delete_tasks('{id}')").leak();
    let a_row: &str = format!("{y}; SELECT taskq.cancel_tasks('{{a}}')").leak();
    let settled = json!({"id": "a", "condition": "settled"});
    let insert = "SELECT taskq.insert_tasks($1, if_missing => $if)";
    let skip = "SELECT taskq.insert_tasks($1, 'skip', if_missing => $if)";
    let replace = "SELECT taskq.replace_tasks($1, if_missing => $if)";
    let id = json!({"id": "id", "action": "x"});
    let n = json!({"id": "n", "action": "x", "depends_on": ["y"]});
    let behind = json!({"id": "n", "action": "x", "depends_on": [settled, "y"]});
    let before = json!({"id": "n", "action": "x", "depends_on": [settled], "to_signal_after": ["y"]});
    let merged = json!({"id": "n", "action": "x", "merge_key": "m", "depends_on": ["y"]});
    vec![
        (an_id, skip, "y-n", json!([id, n])),
        (an_id, replace, "y-n", json!([id, n])),
        (an_id, skip, "n-y", json!([id, {"id": "n", "action": "x", "to_signal_after": ["y"]}])),
        (an_id, replace, "n-y", json!([id, {"id": "n", "action": "x", "to_signal_after": ["y"]}])),
        (a_free_id, insert, "y-n", json!([id, n])),
        (a_row, insert, "a-n y-n", json!([behind])),
        (a_row, insert, "a-n n-y", json!([before])),
        (a_row, skip, "a-n y-n", json!([behind])),
        (a_row, replace, "a-n y-n", json!([behind])),
        (y, insert, "y-n", json!([merged])),
        (y, skip, "y-n", json!([merged])),
    ]
}

#[test]
fn a_dependency_is_found_that_was_missing_before_the_call_waited() {
    for (first, query, expected, tasks) in waits() {
        for if_missing in ["ignore", "error"] {
            for begin in BEGINNINGS {
                let (db, mut session) = with_tasks();
                let query = query.replace("$if", &format!("'{if_missing}'"));
                let answer = call_beside(&db, first, begin, &query, &tasks);
                assert!(answer.is_ok(), "{answer:?}: {query} {tasks} beside {first}");
                assert_eq!(edges(&mut session).join(" "), expected, "{query} {tasks} beside {first}");
            }
        }
    }
}

#[test]
fn so_do_children_of_a_task_that_is_returned() {
    let beside = "SELECT taskq.insert_task('y', 'x'); SELECT taskq.cancel_tasks('{a}')";
    let settled = json!({"id": "a", "condition": "settled"});
    for (child, expected) in [
        (json!({"id": "n", "action": "x", "depends_on": [settled, "y"]}), "a-n y-n"),
        (json!({"id": "n", "action": "x", "depends_on": [settled], "to_signal_after": ["y"]}), "a-n n-y"),
    ] {
        for begin in BEGINNINGS {
            let (db, mut session) = with_tasks();
            let grant = session.own_one("parent");
            let query = format!(
                "SELECT taskq.return_task('p', '{}', 'completed', children => $1)::text",
                grant.token
            );
            let answer = call_beside(&db, beside, begin, &query, &json!([child]));
            assert_eq!(answer, Ok(vec!["completed".to_owned()]), "{child}");
            assert_eq!(edges(&mut session).join(" "), expected);
        }
    }
}

/// A call that was to replace a task by its key writes the id itself once that task has gone. In the next round the id is its own, and
/// not that of a task for which the element is left out.
#[test]
fn the_id_of_a_task_that_has_gone_meanwhile_is_the_elements_own() {
    let unique = json!({"key": "k", "on_conflict": "replace"});
    let tasks = json!([
        {"id": "a", "action": "x", "unique_by": unique}, {"id": "d", "action": "x"},
        {"id": "e", "action": "x", "depends_on": ["a"]},
    ]);
    for begin in ["SET statement_timeout = '20s'", "SET statement_timeout = '20s'; BEGIN; SAVEPOINT s"] {
        let (db, [mut session]) = Db::with_tasks(
            json!([{"id": "a", "action": "x", "unique_by": unique}, {"id": "z", "action": "z"}]),
        );
        // Behind a task that has begun, and is then given back.
        let grant = session.own_one("x");
        session
            .insert(json!([{"id": "s", "action": "x", "unique_by": unique, "depends_on": ["z"]}]))
            .unwrap();
        session
            .run(&format!("SELECT taskq.return_task('a', '{}', 'pending', retry_after => '0')", grant.token));
        let first = "SELECT taskq.delete_tasks('{a}'); SELECT taskq.insert_task('d', 'x')";
        let answer = call_beside(&db, first, begin, "SELECT taskq.insert_tasks($1, 'skip')", &tasks);
        assert_eq!(answer, Ok(vec!["a".to_owned(), "e".to_owned()]), "{begin}");
        assert_eq!(edges(&mut session), ["a-e"], "{begin}");
    }
}

/// What becomes of each element.
const REPORT: &str =
    "SELECT concat_ws(' ', task_id, outcome, existing_id) FROM taskq.insert_tasks_report($1, on_conflict => ";

#[test]
fn no_element_is_left_out_for_a_task_that_has_gone_while_the_call_waited() {
    let b = json!({"id": "b", "action": "x"});
    let key = json!({"id": "n", "action": "x", "unique_by": "k"});
    let behind = json!({"id": "c", "action": "x", "depends_on": [{"id": "a", "condition": "settled"}]});
    let by_id = json!([{"id": "holder", "action": "x"}, b]);
    for (first, mode, tasks, expected) in [
        ("delete_tasks('{holder}')", "'skip')", &by_id, "holder inserted, b skipped b"),
        ("delete_tasks('{holder}')", "'skip')", &json!([key, b]), "n inserted, b skipped b"),
        ("cancel_tasks('{holder}')", "'skip')", &json!([key, b]), "n inserted, b skipped b"),
        ("delete_tasks('{holder}')", "'replace')", &json!([key, b]), "n inserted, b replaced b"),
        ("delete_tasks('{holder}')", "'error')", &json!([key, behind]), "n inserted, c inserted"),
        (
            "replace_tasks('[{\"id\": \"holder\", \"action\": \"x\"}]')",
            "'skip')",
            &json!([key, b]),
            "n inserted, b skipped b",
        ),
        // What takes its place stays in the way of its id.
        (
            "replace_tasks('[{\"id\": \"holder\", \"action\": \"x\"}]')",
            "'skip')",
            &by_id,
            "holder skipped holder, b skipped b",
        ),
    ] {
        for begin in BEGINNINGS {
            let (db, mut session) = with_tasks();
            session.insert(json!([{"id": "holder", "action": "x", "unique_by": "k"}])).unwrap();
            let first = format!(
                "SELECT taskq.{first}; SELECT taskq.insert_task('b', 'x'); SELECT taskq.cancel_tasks('{{a}}')"
            );
            let answer = call_beside(&db, &first, begin, &format!("{REPORT}{mode}"), tasks);
            assert_eq!(answer.map(|all| all.join(", ")), Ok(expected.to_owned()), "{tasks} beside {first}");
        }
    }
}

#[test]
fn what_has_come_and_is_replaced_is_reported_as_that() {
    let tasks = json!([{"id": "b", "action": "x"}, {"id": "c", "action": "x"}]);
    for begin in BEGINNINGS {
        let (db, mut session) = with_tasks();
        session.insert(json!([{"id": "d", "action": "x"}])).unwrap();
        let first = "SELECT taskq.insert_task('b', 'x', body => 'old'); SELECT taskq.insert_task('w', 'x', depends_on => '{b}')";
        let answer = call_beside(&db, first, begin, &format!("{REPORT}'replace')"), &tasks);
        assert_eq!(answer, Ok(vec!["b replaced b".to_owned(), "c inserted".to_owned()]));
        // Its dependent has seen an abort.
        assert_eq!(session.state("w"), "aborted");
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE id = 'b' AND body IS NULL"), 1);
    }
}
