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
fn the_condition_of_a_suspension_goes_with_the_suspension() {
    for start_over in ["taskq.rerun_tasks('{a, b}')", "taskq.rerun_tasks('{a, b, t}')"] {
        let db = Db::new();
        let mut session = db.connect();
        insert(&mut session, 1);
        session.perform("a", "completed");
        let grant = session.own_one("t");
        suspend(&mut session, &grant, "depends_on => '[\"b\"]'").unwrap();
        assert_eq!(condition(&mut session, "b", "t"), "settled");
        session.perform("b", "aborted");
        session.perform("t", "completed");
        session.run(&format!("SELECT {start_over}"));
        assert_eq!(condition(&mut session, "b", "t"), "completed", "{start_over}");
        session.perform("b", "aborted");
        assert_eq!(session.state("t"), "blocked", "{start_over}");
        session.perform("a", "completed");
        assert_eq!(session.state("t"), "ready", "{start_over}");
    }
}

/// What a suspension has lost is not lost for the task that starts over.
#[test]
fn a_task_that_aborted_by_the_condition_of_a_suspension_may_be_retried() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "a", "action": "a"},
                       {"id": "t", "action": "t", "depends_on": [{"id": "a", "condition": "settled"}]}]))
        .unwrap();
    session.perform("a", "completed");
    let grant = session.own_one("t");
    session.run("SELECT taskq.rerun_tasks('{a}', false)");
    suspend(&mut session, &grant, "depends_on => '[{\"id\": \"a\", \"condition\": \"completed\"}]'").unwrap();
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["a"]);
    session.perform("a", "aborted");
    assert_eq!(session.state("t"), "aborted");
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{t}')"), 1);
    assert_eq!(session.state("t"), "ready");
    assert_eq!(session.task("t").unwrap().num_failures, 1);
}

#[test]
fn a_task_waits_again_for_what_it_is_suspended_for() {
    let db = Db::new();
    let mut session = db.connect();
    insert(&mut session, 1);
    session.perform("a", "completed");
    let grant = session.own_one("t");
    suspend(&mut session, &grant, "depends_on => '[\"b\", {\"id\": \"s\", \"signal\": true}]'").unwrap();
    session.perform("b", "aborted");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["s"]);
    // Both a and b were its own; a it had, for b it was suspended.
    session.run("SELECT taskq.rerun_tasks('{a, b}')");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["a", "b", "s"]);
    assert_eq!(session.task("t").unwrap().num_failures, 0);
    assert!(signal(&mut session, "s"));
    session.perform("b", "aborted");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["a"]);
    session.perform("a", "completed");
    assert_eq!(session.state("t"), "ready");
    assert_eq!(session.broken(), Vec::<String>::new());
}

#[test]
fn two_suspensions_in_one_transaction_are_two() {
    let db = Db::new();
    let mut session = db.connect();
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
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "x", "action": "w"}, {"id": "y", "action": "w", "depends_on": ["x"]},
                       {"id": "z", "action": "w", "depends_on": ["y"]}, {"id": "other", "action": "w"},
                       {"id": "some", "action": "w", "depends_on": ["x", "y", "z"], "num_required": 2},
                       {"id": "all", "action": "w", "depends_on": ["x", "y", "z"]},
                       {"id": "left", "action": "w", "depends_on": ["x", "y", "other"], "num_required": 2},
                       {"id": "after", "action": "w", "depends_on": [{"id": "left", "condition": "aborted"}]}]))
        .unwrap();
    assert_eq!(session.delete(&["x"]).unwrap(), 5);
    assert_eq!(session.all::<String>("SELECT id FROM taskq.tasks ORDER BY 1"), ["after", "left", "other"]);
    let left = session.task("left").unwrap();
    assert_eq!((left.state.as_str(), left.total_dependencies), ("aborted", 0));
    assert_eq!(session.state("after"), "ready");
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// Its earlier end was kept by the task; a dependency that is asked for is one on the end to come.
#[test]
fn a_dependency_on_one_that_started_over_is_waited_for_if_it_is_added() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
                       {"id": "t", "action": "t", "depends_on": [{"id": "a", "condition": "settled"}]},
                       {"id": "u", "action": "u", "depends_on": ["a", "b"], "num_required": 2},
                       {"id": "v", "action": "v", "depends_on": ["a", "b"], "num_required": 1}]))
        .unwrap();
    session.perform("a", "aborted");
    session.run("SELECT taskq.rerun_tasks('{a}', false)");
    assert_eq!((session.state("t"), session.state("v")), ("ready".to_owned(), "blocked".to_owned()));
    session.run("SELECT taskq.add_dependencies('{a}', '{t}', 'settled')");
    assert_eq!(session.depend_on("a", "v").unwrap(), 1);
    let task = session.task("t").unwrap();
    assert_eq!((task.state.as_str(), task.num_failures, task.total_dependencies), ("blocked", 0, 1));
    session.perform("a", "completed");
    assert_eq!((session.state("t"), session.state("v")), ("ready".to_owned(), "ready".to_owned()));
    assert_eq!(session.state("u"), "aborted", "it was lost for this one, which needs both");
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// The cycle leads over an end that a task keeps.
#[test]
fn what_a_task_keeps_closes_no_cycle_until_it_is_waited_for() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "t", "action": "t", "depends_on": ["a"]}]))
        .unwrap();
    session.perform("a", "completed");
    session.run("SELECT taskq.rerun_tasks('{a}', false)");
    session.depend_on("t", "a").unwrap();
    let error = session.depend_on("a", "t").unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&error), "TQ004");
    session.perform("t", "completed");
    session.perform("a", "completed");
}

/// What a rewound task waits for besides its suspension is waited for under the conditions that it had.
#[test]
fn rewinding_leaves_no_condition_of_the_suspension() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "t", "action": "t", "depends_on": ["a"]}]))
        .unwrap();
    session.perform("a", "completed");
    session.run("SELECT taskq.rerun_tasks('{a}', false)");
    let grant = session.own_one("t");
    session.run(&format!("SELECT taskq.save_step('t', '{}', 'x', '1')", grant.token));
    suspend(&mut session, &grant, &format!("{} || '[\"a\"]'", FOR_S.replace("]'", "]'::jsonb"))).unwrap();
    assert_eq!(condition(&mut session, "a", "t"), "settled");
    session.run("SELECT taskq.rewind_task('t', 'x')");
    assert_eq!(condition(&mut session, "a", "t"), "completed");
    assert_eq!(session.state("t"), "blocked");
    session.perform("a", "aborted");
    assert_eq!(session.state("t"), "aborted");
}

/// Its dependency has started over while the task was settled, and is no end that it had and that is gone.
#[test]
fn a_task_that_starts_over_waits_for_what_has_started_over_before() {
    for (end, again) in [("completed", "rerun_tasks"), ("aborted", "retry_tasks"), ("aborted", "rerun_tasks")]
    {
        let db = Db::new();
        let mut session = db.connect();
        session
            .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
                           {"id": "t", "action": "t", "depends_on": ["a", "b"], "num_required": 2}]))
            .unwrap();
        session.perform("a", "completed");
        session.perform("b", "completed");
        session.perform("t", end);
        session.run("SELECT taskq.rerun_tasks('{a}', false)");
        session.run(&format!("SELECT taskq.{again}('{{t}}')"));
        assert_eq!(session.state("t"), "blocked", "{end}, {again}");
        session.perform("a", "completed");
        assert_eq!(session.state("t"), "ready", "{end}, {again}");
        // What is gone counts as before.
        session.perform("t", end);
        session.run("SELECT taskq.delete_tasks('{b}')");
        session.run(&format!("SELECT taskq.{again}('{{t}}')"));
        assert_eq!(session.state("t"), "ready", "{end}, {again}, and b is gone");
        assert_eq!(session.broken(), Vec::<String>::new());
    }
}

/// The second end of what a task was suspended for is counted by none, and is taken back from none.
#[test]
fn a_second_end_of_what_a_task_has_gone_on_after_is_not_counted() {
    for (first, second, again) in [
        ("completed", "aborted", "retry_tasks('{d}')"),
        ("completed", "aborted", "rerun_tasks('{d}')"),
        ("aborted", "completed", "rerun_tasks('{d}')"),
    ] {
        let db = Db::new();
        let mut session = db.connect();
        session.insert(json!([{"id": "t", "action": "t"}, {"id": "d", "action": "d"}])).unwrap();
        let grant = session.own_one("t");
        suspend(&mut session, &grant, "depends_on => '[\"d\"]'").unwrap();
        session.perform("d", first);
        session.run("SELECT taskq.rerun_tasks('{d}', false)");
        session.perform("d", second);
        let failures = i32::from(first == "aborted");
        assert_eq!(session.task("t").unwrap().num_failures, failures, "{first}, {second}");
        session.run(&format!("SELECT taskq.{again}"));
        let task = session.task("t").unwrap();
        assert_eq!((task.state.as_str(), task.num_failures), ("ready", 0), "{first}, {second}, {again}");
    }
}

#[test]
fn a_task_may_be_suspended_again_for_what_has_ended_otherwise_meanwhile() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "t", "action": "t"}, {"id": "d", "action": "d"}])).unwrap();
    let for_d = "depends_on => '[{\"id\": \"d\", \"condition\": \"completed\"}]'";
    let grant = session.own_one("t");
    suspend(&mut session, &grant, for_d).unwrap();
    session.perform("d", "completed");
    let grant = session.own_one("t");
    session.run("SELECT taskq.rerun_tasks('{d}', false)");
    session.perform("d", "aborted");
    assert_eq!(session.broken(), Vec::<String>::new());
    suspend(&mut session, &grant, for_d).unwrap();
    let task = session.task("t").unwrap();
    assert_eq!((task.state.as_str(), task.num_failures), ("ready", 1));
}

/// Its dependents have kept another end than the one that is retried.
#[test]
fn a_retry_leaves_those_alone_that_have_not_counted_the_abort() {
    let db = Db::new();
    let mut session = db.connect();
    let settled = json!([{"id": "d", "condition": "settled"}]);
    session
        .insert(json!([{"id": "d", "action": "d"},
                       {"id": "plain", "action": "plain", "depends_on": settled},
                       {"id": "some", "action": "some", "depends_on": settled, "num_required": 1},
                       {"id": "strict", "action": "strict", "depends_on": ["d"]},
                       {"id": "held", "action": "held", "depends_on": settled}]))
        .unwrap();
    session.perform("d", "completed");
    let held = session.own_one("held");
    session.run("SELECT taskq.rerun_tasks('{d}', false)");
    session.perform("d", "aborted");
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{d}')"), 1);
    for id in ["plain", "some", "strict"] {
        assert_eq!(session.state(id), "ready", "{id}");
    }
    assert_eq!(condition(&mut session, "d", "held"), "settled");
    session.give("held", held.token, "completed").unwrap();
    // What starts over with its dependents is another matter.
    session.perform("d", "completed");
    session.run("SELECT taskq.rerun_tasks('{d}')");
    for id in ["plain", "some", "strict", "held"] {
        assert_eq!(session.state(id), "blocked", "{id}");
    }
}

/// As one that is free keeps it.
#[test]
fn a_suspended_task_has_had_what_is_deleted_meanwhile() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
                       {"id": "t", "action": "t", "num_required": 2, "depends_on": [{"id": "a", "condition": "settled"}, "b"]}]))
        .unwrap();
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
