//! What a dependency counts for, after suspensions, reruns and deletions.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::{signal, suspend, waits_for};

const FOR_S: &str = "depends_on => '[{\"id\": \"s\", \"signal\": true}]'";

/// The condition under which a task runs after another one.
fn condition(session: &mut Session, after: &str, run: &str) -> String {
    session.one(&format!(
        "SELECT condition::text FROM taskq.dependencies WHERE run = '{run}' AND after = '{after}'"
    ))
}

/// Tasks a and b, each of an action of its own name; and t, which depends on both, and needs so many.
fn insert(session: &mut Session, required: i32) {
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
                       {"id": "t", "action": "t", "depends_on": ["a", "b"], "num_required": required}]))
        .unwrap();
}

#[test]
fn what_a_task_went_on_without_and_was_suspended_for_goes_with_the_suspension() {
    let (_db, [mut session]) = Db::connected();
    insert(&mut session, 1);
    session.perform("a", "completed");
    let grant = session.own_one("t");
    suspend(&mut session, &grant, "depends_on => '[\"b\"]'").unwrap();
    assert_eq!(condition(&mut session, "b", "t"), "settled");
    session.perform("b", "aborted");
    session.perform("t", "completed");
    session.run("SELECT taskq.rerun_tasks('{a, b}')");
    assert_eq!(session.all::<String>("SELECT after FROM taskq.dependencies WHERE run = 't'"), ["a"]);
    session.perform("b", "completed");
    assert_eq!(session.state("t"), "blocked");
    session.perform("a", "completed");
    assert_eq!(session.state("t"), "ready");
}

/// What a suspension has lost is not lost for the task that starts over.
#[test]
fn a_task_that_aborted_by_the_condition_of_a_suspension_may_be_retried() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "a"},
            {"id": "t", "action": "t", "depends_on": [{"id": "a", "condition": "settled"}]}]));
    session.perform("a", "completed");
    let grant = session.own_one("t");
    session.run("SELECT taskq.rerun_tasks('{a}', false)");
    suspend(&mut session, &grant, "depends_on => '[{\"id\": \"a\", \"condition\": \"completed\"}]'").unwrap();
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["a"]);
    session.perform("a", "aborted");
    assert_eq!(session.state("t"), "aborted");
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{t}')"), 1);
    assert_eq!(session.state("t"), "ready");
    assert_eq!(session.task("t").unwrap().num_failures, 0, "what it was suspended for is over");
}

#[test]
fn a_task_waits_again_for_what_it_is_suspended_for() {
    let (_db, [mut session]) = Db::connected();
    insert(&mut session, 1);
    session.perform("a", "completed");
    let grant = session.own_one("t");
    suspend(&mut session, &grant, "depends_on => '[\"b\", {\"id\": \"s\", \"signal\": true}]'").unwrap();
    session.perform("b", "aborted");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["s"]);
    // The one it had; the other it was suspended for.
    session.run("SELECT taskq.rerun_tasks('{a}'), taskq.retry_tasks('{b}')");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["a", "b", "s"]);
    assert_eq!(session.task("t").unwrap().num_failures, 0);
    assert!(signal(&mut session, "s"));
    session.perform("b", "aborted");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["a"]);
    session.perform("a", "completed");
    assert_eq!(session.state("t"), "ready");
}

#[test]
fn two_suspensions_in_one_transaction_are_two() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('t', 't')");
    session.run("BEGIN");
    for id in ["s", "z"] {
        let grant = session.own_one("t");
        suspend(&mut session, &grant, &format!("depends_on => '[{{\"id\": \"{id}\", \"signal\": true}}]'"))
            .unwrap();
        if id == "s" {
            assert!(signal(&mut session, "s"));
        }
    }
    session.run("COMMIT");
    session.run("SELECT taskq.rerun_tasks('{s}')");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["z"]);
    assert!(signal(&mut session, "z"));
    assert_eq!(session.state("t"), "ready");
}

#[test]
fn a_task_that_loses_all_by_one_deletion_goes_with_them() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "x", "action": "w"}, {"id": "y", "action": "w", "depends_on": ["x"]},
                {"id": "z", "action": "w", "depends_on": ["y"]}, {"id": "other", "action": "w"},
                {"id": "some", "action": "w", "depends_on": ["x", "y", "z"], "num_required": 2},
                {"id": "all", "action": "w", "depends_on": ["x", "y", "z"]},
                {"id": "left", "action": "w", "depends_on": ["x", "y", "other"], "num_required": 2},
                {"id": "after", "action": "w", "depends_on": [{"id": "left", "condition": "aborted"}]}]));
    assert_eq!(session.delete(&["x"]).unwrap(), 5);
    assert_eq!(session.all::<String>("SELECT id FROM taskq.tasks ORDER BY 1"), ["after", "left", "other"]);
    let left = session.task("left").unwrap();
    assert_eq!((left.state.as_str(), left.total_dependencies), ("aborted", 0));
    assert_eq!(session.state("after"), "ready");
}

/// Its earlier end stays in the numbers of the task; a dependency that is asked for is a new one, on the end to come.
#[test]
fn a_dependency_on_one_that_started_over_is_waited_for_if_it_is_added() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
            {"id": "t", "action": "t", "depends_on": [{"id": "a", "condition": "settled"}]},
            {"id": "u", "action": "u", "depends_on": ["a", "b"], "num_required": 2},
            {"id": "v", "action": "v", "depends_on": ["a", "b"], "num_required": 1}]));
    session.perform("a", "aborted");
    session.run("SELECT taskq.rerun_tasks('{a}', false)");
    assert_eq!((session.state("t"), session.state("v")), ("ready".to_owned(), "blocked".to_owned()));
    session.run("SELECT taskq.add_dependencies('{a}', '{t}', 'settled')");
    assert_eq!(session.depend_on("a", "v").unwrap(), 1);
    let task = session.task("t").unwrap();
    assert_eq!((task.state.as_str(), task.num_failures, task.total_dependencies), ("blocked", 1, 2));
    session.perform("a", "completed");
    assert_eq!((session.state("t"), session.state("v")), ("ready".to_owned(), "ready".to_owned()));
    assert_eq!(session.state("u"), "aborted", "it was lost for this one, which needs both");
}

#[test]
fn a_task_may_be_suspended_again_for_what_has_ended_otherwise_meanwhile() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "t", "action": "t"}, {"id": "d", "action": "d"}]));
    let for_d = "depends_on => '[{\"id\": \"d\", \"condition\": \"completed\"}]'";
    let grant = session.own_one("t");
    suspend(&mut session, &grant, for_d).unwrap();
    session.perform("d", "completed");
    let grant = session.own_one("t");
    session.run("SELECT taskq.rerun_tasks('{d}', false)");
    session.perform("d", "aborted");
    assert_eq!(session.broken(), Vec::<String>::new());
    assert_eq!(suspend(&mut session, &grant, for_d).unwrap(), "aborted", "that is a new dependency");
}

/// As one that is free keeps it.
#[test]
fn a_suspended_task_has_had_what_is_deleted_meanwhile() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
            {"id": "t", "action": "t", "num_required": 2, "depends_on": [{"id": "a", "condition": "settled"}, "b"]}]));
    session.perform("a", "aborted");
    session.perform("b", "completed");
    let grant = session.own_one("t");
    suspend(&mut session, &grant, FOR_S).unwrap();
    session.run("SELECT taskq.delete_tasks('{a, b}')");
    assert!(signal(&mut session, "s"));
    let task = session.task("t").unwrap();
    assert_eq!((task.num_failures, task.total_dependencies), (1, 3));
    session.perform("t", "completed");
    assert_eq!(session.one::<i64>("SELECT taskq.rerun_tasks('{t}')"), 1);
    assert_eq!(session.state("t"), "ready");
}
