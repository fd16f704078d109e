//! `retry_tasks` and the tasks that lived because of the abort: error handlers (`aborted`) and clean-up (`settled`), in each
//! state that they may have reached. One that has not begun waits again, and may yet turn out not to be needed; one that
//! is at work goes on; one that has ended stays. Wrong code runs a compensation for a step that succeeded in the end.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::{hold, states};

const HANDLERS: [&str; 2] = ["settled", "aborted"];

/// `step` has aborted; a handler by each condition is ready, with something after it.
fn failed_step(session: &mut Session) {
    let mut tasks = vec![json!({"id": "step", "action": "step"})];
    for condition in HANDLERS {
        let edge = json!([{"id": "step", "condition": condition}]);
        tasks.push(json!({"id": condition, "action": condition, "depends_on": edge}));
        tasks.push(json!({"id": format!("after {condition}"), "action": "after", "depends_on": [condition]}));
    }
    session.insert(json!(tasks)).unwrap();
    session.perform("step", "aborted");
    assert_eq!(states(session, HANDLERS), ["ready", "ready"]);
}

fn retry(session: &mut Session) -> i64 {
    session.one("SELECT taskq.retry_tasks('{step}')")
}

#[test]
fn a_handler_that_has_not_begun_waits_again() {
    for (end, expected) in [("completed", ["ready", "aborted"]), ("aborted", ["ready", "ready"])] {
        let (_db, [mut session]) = Db::connected();
        failed_step(&mut session);
        assert_eq!(retry(&mut session), 1);
        for id in HANDLERS {
            let task = session.task(id).unwrap();
            assert_eq!((task.state.as_str(), task.num_failures, task.num_signals), ("blocked", 0, 0), "{id}");
        }
        session.perform("step", end);
        assert_eq!(states(&mut session, HANDLERS), expected, "{end}");
        let failures = i32::from(end == "aborted");
        assert_eq!(session.task("settled").unwrap().num_failures, failures);
        let skipped = if end == "completed" { "aborted" } else { "blocked" };
        assert_eq!(session.state("after aborted"), skipped);
    }
}

#[test]
fn a_handler_in_progress_goes_on_and_hears_no_more_of_the_step() {
    let (_db, [mut session]) = Db::connected();
    failed_step(&mut session);
    let (settled, aborted) = (session.own_one("settled"), session.own_one("aborted"));
    assert_eq!(retry(&mut session), 1);
    assert_eq!(states(&mut session, HANDLERS), ["in-progress"; 2]);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.dependencies WHERE after = 'step'"), 0);
    session.perform("step", "completed");
    assert_eq!(states(&mut session, HANDLERS), ["in-progress"; 2]);
    session.complete(&settled);
    session.complete(&aborted);
    assert_eq!(states(&mut session, ["after settled", "after aborted"]), ["ready", "ready"]);
    assert_eq!(session.task("aborted").unwrap().num_failures, 1, "what it counted, it counted");
}

#[test]
fn a_handler_that_has_run_stays_as_it_is_and_does_not_run_again() {
    let (_db, [mut session]) = Db::connected();
    failed_step(&mut session);
    session.perform("settled", "completed");
    session.perform("aborted", "completed");
    for end in ["aborted", "completed"] {
        assert_eq!(retry(&mut session), 1);
        assert_eq!(states(&mut session, HANDLERS), ["completed"; 2]);
        session.perform("step", end);
        assert_eq!(states(&mut session, HANDLERS), ["completed"; 2], "{end}");
        assert!(session.own("w", 1, &HANDLERS).unwrap().is_empty());
    }
    assert_eq!(states(&mut session, ["after settled", "after aborted"]), ["ready", "ready"]);
}

#[test]
fn a_handler_with_a_time_or_a_failed_try_behind_it_waits_again_and_keeps_them() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    failed_step(&mut session);
    let grant = session.own_one("settled");
    session.give_with("settled", grant.token, "pending", "retry_after => '1 hour'").unwrap();
    session.perform("aborted", "pending");
    assert_eq!(states(&mut session, HANDLERS), ["scheduled", "ready"]);
    assert_eq!(retry(&mut session), 1);
    assert_eq!(states(&mut session, HANDLERS), ["blocked"; 2]);
    session.perform("step", "aborted");
    assert_eq!(states(&mut session, HANDLERS), ["scheduled", "ready"]);
    let tries = HANDLERS.map(|id| session.task(id).unwrap().num_tries);
    assert_eq!(tries, [1, 1]);
}

#[test]
fn a_handler_that_waits_for_others_as_well_is_counted_right() {
    let (_db, [mut session]) = Db::connected();
    let edges =
        |ids: &[&str]| ids.iter().map(|id| json!({"id": id, "condition": "settled"})).collect::<Vec<_>>();
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "open"},
                       {"id": "sum", "action": "sum", "depends_on": edges(&["a", "b", "c"])}]))
        .unwrap();
    session.perform("x", "aborted");
    session.perform("x", "aborted");
    assert_eq!(session.task("sum").unwrap().num_failures, 2);
    let count: i64 = session.one("SELECT taskq.retry_tasks('{a}')");
    assert_eq!(count, 1);
    let sum = session.task("sum").unwrap();
    assert_eq!((sum.state.as_str(), sum.num_signals, sum.num_failures), ("blocked", 1, 1));
    session.perform("open", "completed");
    session.perform("x", "completed");
    let sum = session.task("sum").unwrap();
    assert_eq!((sum.state.as_str(), sum.num_signals, sum.num_failures), ("ready", 3, 1));
}

#[test]
fn a_chain_of_compensations_is_taken_back_as_far_as_it_has_not_run() {
    // s1, s2, s3 forward; undo2 and undo1 backward, as in a saga. s3 fails, undo2 has run, undo1 not yet.
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "s1", "action": "s1"}, {"id": "s2", "action": "s2", "depends_on": ["s1"]},
        {"id": "s3", "action": "s3", "depends_on": ["s2"]},
        {"id": "undo2", "action": "undo2", "depends_on": ["s2", {"id": "s3", "condition": "aborted"}]},
        {"id": "undo1", "action": "undo1", "depends_on": ["s1", "undo2"]},
        {"id": "done", "action": "done", "depends_on": ["s3"]},
    ]));
    session.perform("s1", "completed");
    session.perform("s2", "completed");
    session.perform("s3", "aborted");
    let undo2 = hold(&mut session, "undo2");
    assert_eq!(states(&mut session, ["done", "undo2", "undo1"]), ["aborted", "in-progress", "blocked"]);
    // The compensation is under way: the retry lets it be, and what waits for it goes on waiting for it.
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{s3}')"), 2);
    session.perform("s3", "completed");
    assert_eq!(states(&mut session, ["done", "undo2", "undo1"]), ["ready", "in-progress", "blocked"]);
    session.complete(&undo2[0]);
    assert_eq!(session.state("undo1"), "ready");
}

#[test]
fn handlers_of_what_comes_back_downstream_wait_again_too() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "step", "action": "step"}, {"id": "next", "action": "next", "depends_on": ["step"]},
        {"id": "alarm", "action": "alarm", "depends_on": [{"id": "next", "condition": "aborted"}]},
        {"id": "mark", "action": "m", "spontaneous": true, "depends_on": [{"id": "next", "condition": "aborted"}]},
    ]));
    session.perform("step", "aborted");
    assert_eq!(states(&mut session, ["next", "alarm", "mark"]), ["aborted", "ready", "completed"]);
    assert_eq!(retry(&mut session), 2);
    assert_eq!(states(&mut session, ["next", "alarm", "mark"]), ["blocked", "blocked", "completed"]);
    session.perform("step", "completed");
    session.perform("next", "completed");
    assert_eq!(states(&mut session, ["alarm", "mark"]), ["aborted", "completed"]);
}
