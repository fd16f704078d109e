//! The recipes of docs/workflows.md in all their turns: the page shows how a saga undoes its steps after one failure, here it
//! fails at each of its steps, and so on. A recipe that only works on the sunny day is worse than none.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

use super::{states, work_off};

/// The saga of the page: three steps, each but the last with a compensation, and two ends.
fn saga(session: &mut Session) {
    let failed = json!({"id": "car", "condition": "aborted"});
    session
        .insert(json!([
            {"id": "flight", "action": "book"},
            {"id": "hotel", "action": "book", "depends_on": ["flight"]},
            {"id": "car", "action": "book", "depends_on": ["hotel"]},
            {"id": "undo-hotel", "action": "undo", "depends_on": ["hotel", failed]},
            {"id": "undo-flight", "action": "undo", "depends_on": ["flight", failed, {"id": "undo-hotel", "condition": "settled"}]},
            {"id": "booked", "action": "end", "spontaneous": true, "depends_on": ["car"]},
            {"id": "undone", "action": "end", "spontaneous": true, "depends_on": [failed, {"id": "undo-flight", "condition": "settled"}]},
        ]))
        .unwrap();
}

#[test]
fn a_saga_undoes_just_what_was_done_in_reverse_order() {
    for fails in ["flight", "hotel", "car", "nothing"] {
        let db = Db::new();
        let mut session = db.connect();
        saga(&mut session);
        for step in ["flight", "hotel", "car"] {
            assert_eq!(session.perform("book", if step == fails { "aborted" } else { "completed" }), step);
            if step == fails {
                break;
            }
        }
        assert!(session.own("w", 1, &["book"]).unwrap().is_empty(), "no step after the one that failed");
        let expected: Vec<Vec<&str>> = match fails {
            "car" => vec![vec!["undo-hotel"], vec!["undo-flight"]],
            "hotel" => vec![vec!["undo-flight"]],
            _ => vec![],
        };
        assert_eq!(work_off(&mut session, &["undo"]), expected, "{fails} fails");
        let ends = if fails == "nothing" { ["completed", "aborted"] } else { ["aborted", "completed"] };
        assert_eq!(states(&mut session, ["booked", "undone"]), ends, "{fails} fails");
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE settled_at IS NULL"), 0);
    }
}

#[test]
fn a_compensation_that_fails_stops_no_other_and_is_counted() {
    let db = Db::new();
    let mut session = db.connect();
    saga(&mut session);
    session.perform("book", "completed");
    session.perform("book", "completed");
    session.perform("book", "aborted");
    assert_eq!(session.perform("undo", "aborted"), "undo-hotel");
    let undo = session.own_one("undo");
    assert_eq!(
        (undo.task_id.as_str(), undo.num_failures),
        ("undo-flight", 2),
        "the car, and the first compensation"
    );
    session.complete(&undo);
    assert_eq!(session.state("undone"), "completed");
}

#[test]
fn a_saga_that_is_cancelled_as_a_whole_is_undone_too() {
    let db = Db::new();
    let mut session = db.connect();
    saga(&mut session);
    session.perform("book", "completed");
    // The step under way is taken from its actor; what was done before it is undone.
    let held = session.own_one("book");
    session.cancel(&["hotel"]).unwrap();
    assert_eq!(taskq_tests::sqlstate(&session.give("hotel", held.token, "completed").unwrap_err()), "TQ001");
    assert_eq!(work_off(&mut session, &["undo"]), [vec!["undo-flight"]]);
}

#[test]
fn a_map_reduce_whose_width_the_first_task_decides_adds_up() {
    let db = Db::new();
    let mut session = db.connect();
    for width in [0, 1, 7] {
        session
            .insert(json!([{"id": "split", "action": "split"}, {"id": "sum", "action": "sum", "depends_on": ["split"]}]))
            .unwrap();
        let split = session.own_one("split");
        let parts: Vec<Value> = (1..=width).map(|n| json!({"action": "square", "body": n})).collect();
        session
            .give_with(
                "split",
                split.token,
                "completed",
                &format!("children_block => true, children => '{}'", json!(parts)),
            )
            .unwrap();
        session.run(
            "SELECT taskq.return_task(task_id, token, result => to_jsonb(body::integer * body::integer))
               FROM taskq.own_tasks('w', 100, '{square}')",
        );
        let sum: Option<i64> = session.one(
            "SELECT sum((r -> 'result')::integer) FILTER (WHERE r ->> 'action' = 'square')
               FROM taskq.own_tasks('w', 1, '{sum}', with_results => true), jsonb_array_elements(results) AS r",
        );
        assert_eq!(sum.unwrap_or(0), (1..=width).map(|n| n * n).sum::<i64>(), "width {width}");
        session.run(
            "SELECT taskq.cancel_tasks('{sum}'); SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks",
        );
    }
}

#[test]
fn an_approval_can_be_given_refused_or_run_out_of_time() {
    for outcome in ["given", "refused", "late"] {
        let db = Db::new();
        let mut session = db.connect();
        session.set_now(Some("2030-01-01 00:00:00Z"));
        session
            .insert(json!([
                {"id": "approve", "action": "approval"},
                {"id": "timeout", "action": "cancel", "body": "approve", "delay": "2 days"},
                {"id": "deploy", "action": "deploy", "depends_on": ["approve"]},
                {"id": "tell", "action": "mail", "depends_on": [{"id": "approve", "condition": "aborted"}]},
            ]))
            .unwrap();
        match outcome {
            "given" => session.run("SELECT taskq.complete_task('approve')"),
            "refused" => session.run("SELECT taskq.cancel_tasks('{approve}', 'no')"),
            _ => {}
        }
        session.set_now(Some("2030-01-03 00:00:01Z"));
        // What an actor of `cancel` does: nothing, if the decision has fallen.
        let late: i64 = session.one(
            "WITH held AS MATERIALIZED (SELECT * FROM taskq.own_tasks('w', 1, '{cancel}'))
             SELECT taskq.cancel_tasks(ARRAY[body], 'not decided within two days') FROM held",
        );
        assert_eq!(late, i64::from(outcome == "late"));
        let expected = if outcome == "given" { ["ready", "aborted"] } else { ["aborted", "ready"] };
        assert_eq!(states(&mut session, ["deploy", "tell"]), expected, "{outcome}");
    }
}

#[test]
fn callbacks_on_success_and_on_error_run_one_of_the_two() {
    for (end, runs, skipped) in
        [("completed", "on-success", "on-error"), ("aborted", "on-error", "on-success")]
    {
        let db = Db::new();
        let mut session = db.connect();
        session.run(
            "SELECT * FROM taskq.insert_tasks(taskq.chain(
                '{\"id\": \"work\", \"action\": \"work\"}',
                '[{\"id\": \"on-success\", \"action\": \"callback\"},
                  {\"id\": \"on-error\", \"action\": \"callback\", \"depends_on\": [{\"id\": \"work\", \"condition\": \"aborted\"}]},
                  {\"id\": \"finally\", \"action\": \"callback\", \"depends_on\": [{\"id\": \"work\", \"condition\": \"settled\"}]}]'))",
        );
        session.perform("work", end);
        assert_eq!(session.state(skipped), "aborted");
        let mut expected = vec!["finally", runs];
        expected.sort();
        assert_eq!(work_off(&mut session, &["callback"]), [expected], "{end}");
    }
}
