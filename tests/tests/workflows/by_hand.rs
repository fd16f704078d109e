//! `complete_task`: an operator completes a task that no worker owns and nothing blocks. Wrong code takes a task out of
//! a worker's hands, completes what still waits, or waits for ever for a worker that is just being granted the task.

use serde_json::json;
use taskq_tests::{Db, refused, sqlstate};

use super::states;

#[test]
fn an_approval_by_hand_gives_a_result_to_dependents_and_waiting_calls() {
    let (db, [mut session]) = Db::with_tasks(json!([
        {"id": "draft", "action": "write"},
        {"id": "approve", "action": "approval", "depends_on": ["draft"]},
        {"id": "publish", "action": "publish", "depends_on": ["approve"]},
        {"id": "escalate", "action": "mail", "depends_on": [{"id": "approve", "condition": "aborted"}]},
    ]));
    session.perform("write", "completed");
    let waiter = db.connect().background(|session| session.wait("approve", "60 seconds").unwrap());
    session.until_asleep(waiter.pid());
    let code: String =
        session.one("SELECT taskq.complete_task('approve', '{\"by\": \"ann\"}', 'looks good')");
    assert_eq!(code, "completed");
    let woken = waiter.join().1.unwrap();
    assert_eq!((woken.status.as_deref(), woken.result), (Some("looks good"), Some(json!({"by": "ann"}))));
    assert_eq!(states(&mut session, ["approve", "publish", "escalate"]), ["completed", "ready", "aborted"]);
    let task = session.task("approve").unwrap();
    assert_eq!((task.num_tries, task.actor_id), (0, None), "no worker has owned it");
    let by: String = session.one(
        "SELECT results #>> '{0,result,by}' FROM taskq.own_tasks('w', 1, '{publish}', with_results => true)",
    );
    assert_eq!(by, "ann");
}

#[test]
fn a_rejection_is_a_cancel_and_runs_the_other_branch() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "approve", "action": "approval"},
            {"id": "publish", "action": "publish", "depends_on": ["approve"]},
            {"id": "escalate", "action": "mail", "depends_on": [{"id": "approve", "condition": "aborted"}]}]));
    session.run("SELECT taskq.cancel_tasks('{approve}', 'not like this')");
    assert_eq!(states(&mut session, ["publish", "escalate"]), ["aborted", "ready"]);
    refused(&mut session, "TQ005", "approve", "SELECT taskq.complete_task('approve')", &[]);
}

#[test]
fn what_is_ready_given_back_or_scheduled_can_be_completed_by_hand() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "ready", "action": "a"}, {"id": "back", "action": "b"}, {"id": "later", "action": "c", "delay": "1 day"},
               {"id": "retried", "action": "d"}]),
    );
    session.perform("b", "pending");
    let grant = session.own_one("d");
    session.give_with("retried", grant.token, "pending", "retry_after => '1 hour'").unwrap();
    for id in ["ready", "back", "later", "retried"] {
        let code: String = session.one(&format!("SELECT taskq.complete_task('{id}')"));
        assert_eq!((code.as_str(), session.state(id).as_str()), ("completed", "completed"), "{id}");
    }
    assert!(session.own("w", 1, &["a", "b", "c", "d"]).unwrap().is_empty());
}

#[test]
fn what_is_blocked_held_or_settled_is_refused() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "held", "action": "x"}, {"id": "blocked", "action": "y", "depends_on": ["held"]},
               {"id": "late", "action": "z"}, {"id": "done", "action": "d"}]),
    );
    let held = session.own_one("x");
    // Its deadline has passed, but its actor may still return it.
    let late = session.own_one_with("z", "lease => '0'");
    session.perform("d", "completed");
    for id in ["held", "blocked", "late", "done"] {
        refused(&mut session, "TQ005", id, &format!("SELECT taskq.complete_task('{id}')"), &[]);
    }
    refused(&mut session, "TQ003", "absent", "SELECT taskq.complete_task('absent')", &[]);
    refused(&mut session, "22004", "task_id", "SELECT taskq.complete_task(NULL)", &[]);
    session.complete(&held);
    session.complete(&late);
}

#[test]
fn a_worker_that_was_granted_the_task_first_keeps_it() {
    for commit in [true, false] {
        let (_db, [mut worker, operator, mut watcher]) = Db::connected();
        watcher.insert(json!([{"id": "t", "action": "x"}])).unwrap();
        worker.run("BEGIN");
        let grant = worker.own_one("x");
        let call = operator
            .background(|session| session.query_one("SELECT taskq.complete_task('t')", &[]).map(drop));
        call.settle_down(&mut watcher);
        worker.run(if commit { "COMMIT" } else { "ROLLBACK" });
        let answer = call.join().1;
        if commit {
            assert_eq!(sqlstate(&answer.unwrap_err()), "TQ005");
            worker.complete(&grant);
        } else {
            answer.unwrap();
        }
        assert_eq!(watcher.task("t").unwrap().num_tries, i32::from(commit));
    }
}

#[test]
fn a_worker_that_asks_while_the_operator_is_at_it_gets_the_next_one() {
    let (_db, [mut operator, mut worker]) = Db::connected();
    worker.insert(json!([{"id": "t", "action": "x"}, {"id": "next", "action": "x"}])).unwrap();
    operator.run("BEGIN; SELECT taskq.complete_task('t')");
    assert_eq!(worker.own_one("x").task_id, "next");
    assert!(worker.own("w", 1, &["x"]).unwrap().is_empty());
    operator.run("ROLLBACK");
    assert_eq!(worker.own_one("x").task_id, "t");
}
