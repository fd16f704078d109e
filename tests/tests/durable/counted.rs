//! How many dependencies a task has, and how many of them have failed, when ends are taken back: by retries and reruns, before and
//! after suspensions, while the task is in progress.
//!
//! Why: `num_failures` counts the dependencies among the `results` that have aborted, and `num_required` what the task has. On wrong
//! code a failure that is taken back counts on, is counted twice, or is subtracted twice.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

use super::{own_with_results, suspend, waits_for};

/// `num_failures`, and the codes of the dependencies, as the next grant of the action `t` tells.
fn granted(session: &mut Session) -> (i32, Vec<String>) {
    let (grant, results) = own_with_results(session, "t");
    let codes: Vec<Value> =
        results.as_array().unwrap().iter().map(|result| result["status_code"].clone()).collect();
    (grant.num_failures, codes.into_iter().map(|code| code.as_str().unwrap().to_owned()).collect())
}

/// A task `t`, which is suspended until `x` has ended, and `x`, which aborts.
fn with_a_failure(session: &mut Session) {
    session.insert(json!([{"id": "x", "action": "x"}, {"id": "t", "action": "t"}])).unwrap();
    until_x(session);
    session.perform("x", "aborted");
}

fn until_x(session: &mut Session) {
    let grant = session.own_one("t");
    assert_eq!(suspend(session, &grant, "depends_on => '[\"x\"]'").unwrap(), "pending");
}

#[test]
fn one_that_some_suffice_for_comes_back_with_what_was_removed_while_it_ran() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "a"},
            {"id": "t", "action": "t", "depends_on": [{"id": "a", "condition": "settled"}], "num_required": 1}]));
    session.cancel(&["a"]).unwrap();
    let grant = session.own_one("t");
    session.run("SELECT taskq.retry_tasks('{a}')");
    session.complete(&grant);
    assert_eq!(session.one::<i64>("SELECT taskq.rerun_tasks('{t}')"), 1);
    assert_eq!(session.state("t"), "ready");
}

#[test]
fn what_has_ended_as_it_should_keeps_its_condition_when_it_is_named_again() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "x", "action": "x"}, {"id": "t", "action": "t", "depends_on": ["x"]}]));
    session.perform("x", "completed");
    let grant = session.own_one("t");
    let named =
        "depends_on => '[{\"id\": \"x\", \"condition\": \"completed\"}, {\"id\": \"s\", \"signal\": true}]'";
    suspend(&mut session, &grant, named).unwrap();
    assert_eq!(
        session.one::<i64>("SELECT taskq.add_dependencies('{x}', '{t}', 'completed')"),
        0,
        "it is there"
    );
    session.run("SELECT taskq.rerun_tasks('{x}')");
    session.perform("x", "aborted");
    assert_eq!(session.state("t"), "aborted");
}

#[test]
fn a_task_that_a_child_has_ended_gets_no_dependency_of_the_call() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "d", "action": "d"}, {"id": "p", "action": "p"},
            {"id": "t", "action": "t", "depends_on": ["p"]}]));
    session.cancel(&["d"]).unwrap();
    session.perform("p", "completed");
    let grant = session.own_one("t");
    let children = "children_block => true, depends_on => '[{\"id\": \"s\", \"signal\": true}]',
        children => '[{\"id\": \"c\", \"action\": \"c\", \"depends_on\": [\"d\"], \"to_signal_after\": [\"t\"]}]'";
    assert_eq!(suspend(&mut session, &grant, children).unwrap(), "aborted");
    let stored: i64 = session.one("SELECT count(*) FROM taskq.dependencies WHERE run = 't'");
    assert_eq!(i64::from(session.task("t").unwrap().total_dependencies), stored);
    session.run("SELECT taskq.retry_tasks('{d}')");
    assert_eq!(session.delete(&["c"]).unwrap(), 1);
    assert_eq!(session.state("t"), "ready", "it has the one of its insertion");
}

#[test]
fn an_end_that_was_kept_is_not_counted_again_after_a_retry() {
    for (second, failures) in [("completed", 0), ("aborted", 1)] {
        let (_db, [mut session]) = Db::connected();
        with_a_failure(&mut session);
        session.run(if second == "completed" {
            "SELECT taskq.rerun_tasks('{x}', false)"
        } else {
            "SELECT taskq.retry_tasks('{x}')"
        });
        session.perform("x", second);
        session.perform("t", "aborted");
        session.run("SELECT taskq.retry_tasks('{t}')");
        until_x(&mut session);
        assert_eq!(granted(&mut session), (failures, vec![second.to_owned()]));
    }
}

#[test]
fn a_failure_of_a_suspension_goes_beside_one_of_those_that_suffice() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "b", "action": "x"}, {"id": "x", "action": "x"},
            {"id": "t", "action": "t", "depends_on": [{"id": "b", "condition": "settled"}], "num_required": 1}]));
    session.cancel(&["b"]).unwrap();
    until_x(&mut session);
    session.cancel(&["x"]).unwrap();
    session.run("SELECT taskq.retry_tasks('{b,x}')");
    assert_eq!((session.state("t"), session.task("t").unwrap().num_failures), ("blocked".to_owned(), 0));
    session.perform("x", "completed");
    session.perform("x", "completed");
    assert_eq!(granted(&mut session), (0, vec!["completed".to_owned()]), "x is none of its any more");
}

#[test]
fn a_rewound_task_counts_what_is_left() {
    let (_db, [mut session]) = Db::connected();
    with_a_failure(&mut session);
    let grant = session.own_one("t");
    session.run(&format!("SELECT taskq.save_step('t', '{}', 'u')", grant.token));
    session.run("SELECT taskq.retry_tasks('{x}')");
    suspend(&mut session, &grant, "retry_after => '0'").unwrap();
    session.perform("x", "completed");
    session.run("SELECT taskq.rewind_task('t', 'u')");
    assert_eq!(granted(&mut session), (0, vec![]));
}

#[test]
fn a_failure_that_is_taken_back_while_the_task_is_in_progress_goes_at_once() {
    let (_db, [mut session]) = Db::connected();
    with_a_failure(&mut session);
    let grant = session.own_one("t");
    session.run("SELECT taskq.retry_tasks('{x}')");
    session.perform("x", "completed");
    suspend(&mut session, &grant, "depends_on => '[{\"id\": \"s\", \"signal\": true}]'").unwrap();
    session.run("SELECT taskq.signal('s')");
    assert_eq!(granted(&mut session), (0, vec!["completed".to_owned()]));
}

#[test]
fn a_suspended_task_is_not_downstream_of_what_it_is_suspended_for() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "x", "action": "x"}, {"id": "t", "action": "t"}, {"id": "s", "action": "s", "signal": true}]),
    );
    let grant = session.own_one("t");
    let named = "depends_on => '[{\"id\": \"x\", \"condition\": \"aborted\"}, \"s\"]'";
    suspend(&mut session, &grant, named).unwrap();
    session.perform("x", "aborted");
    session.run("SELECT taskq.rerun_tasks('{x}')");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["s"]);
    session.perform("x", "completed");
    assert_eq!(session.state("t"), "blocked", "it had what it wanted");
    session.run("SELECT taskq.signal('s')");
    assert_eq!(granted(&mut session), (0, vec!["completed".to_owned()]));
}
