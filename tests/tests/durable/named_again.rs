//! Suspensions that name what the task has waited for before, and ends that are taken back meanwhile.
//!
//! Why: the same call by two workers has to mean the same, whatever their tasks have had before. On wrong code a task goes on without
//! what it named, or counts failures that are none any more.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

use super::{own_with_results, signal, suspend, waits_for};

/// A performance of the only task of the action `work`, which ends by a suspension until the task `b` has ended.
fn until_b(session: &mut Session) {
    let grant = session.own_one("work");
    assert_eq!(suspend(session, &grant, "depends_on => '[\"b\"]'").unwrap(), "pending");
}

fn codes(results: &Value) -> Vec<&str> {
    results.as_array().unwrap().iter().map(|result| result["status_code"].as_str().unwrap()).collect()
}

#[test]
fn a_failure_that_is_taken_back_while_the_task_is_in_progress_counts_no_more() {
    for again in ["retry_tasks('{b}')", "rerun_tasks('{b}')"] {
        for (second, failures) in [("completed", 0), ("aborted", 1)] {
            let (_db, [mut session]) =
                Db::with_tasks(json!([{"id": "t", "action": "work"}, {"id": "b", "action": "x"}]));
            until_b(&mut session);
            session.perform("x", "aborted");
            let grant = session.own_one("work");
            assert_eq!(grant.num_failures, 1);
            session.run(&format!("SELECT taskq.{again}"));
            suspend(&mut session, &grant, "depends_on => '[\"b\"]'").unwrap();
            session.perform("x", second);
            let (grant, results) = own_with_results(&mut session, "work");
            assert_eq!((grant.num_failures, codes(&results)), (failures, vec![second]), "{again}");
        }
    }
}

#[test]
fn what_starts_over_is_waited_for_by_all_that_named_it() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "b", "action": "x"}, {"id": "new", "action": "other"}, {"id": "had", "action": "work"}]),
    );
    session.perform("x", "aborted");
    until_b(&mut session);
    for (action, id) in [("work", "had"), ("other", "new")] {
        let grant = session.own_one(action);
        suspend(&mut session, &grant, "depends_on => '[\"b\", {\"id\": \"s\", \"signal\": true}]'").unwrap();
        assert_eq!(waits_for(&mut session, id).unwrap(), ["s"]);
    }
    session.run("SELECT taskq.retry_tasks('{b}')");
    for id in ["had", "new"] {
        assert_eq!(waits_for(&mut session, id).unwrap(), ["b", "s"], "{id}");
    }
    assert!(signal(&mut session, "s"));
    assert_eq!((session.state("had"), session.state("new")), ("blocked".to_owned(), "blocked".to_owned()));
    session.perform("x", "completed");
    for id in ["had", "new"] {
        let task = session.task(id).unwrap();
        assert_eq!(
            (task.state.as_str(), task.num_failures, task.total_dependencies),
            ("ready", 0, 2),
            "{id}"
        );
    }
}

#[test]
fn what_the_task_went_on_without_is_a_new_dependency_when_it_is_named() {
    for (end, code) in [("completed", "pending"), ("aborted", "aborted")] {
        let (_db, [mut session]) =
            Db::with_tasks(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "x"},
                    {"id": "t", "action": "work", "depends_on": ["a", "b"], "num_required": 1}]));
        session.perform("a", "completed");
        session.perform("x", end);
        let grant = session.own_one("work");
        let named = "depends_on => '[{\"id\": \"b\", \"condition\": \"completed\"}]'";
        assert_eq!(suspend(&mut session, &grant, named).unwrap(), code);
    }
}

#[test]
fn the_code_is_that_which_a_child_has_left() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "t", "action": "work"}, {"id": "lost", "action": "x"}]));
    session.cancel(&["lost"]).unwrap();
    let grant = session.own_one("work");
    let children = "children_block => true, children => '[{\"id\": \"c\", \"action\": \"c\", \"depends_on\": [\"lost\"], \"to_signal_after\": [\"t\"]}]'";
    assert_eq!(suspend(&mut session, &grant, children).unwrap(), "aborted");
    assert_eq!(session.state("t"), "aborted");
}
