//! `rerun_tasks` that is refused, and changes nothing.

use serde_json::json;
use taskq_tests::session::AT_ONCE;
use taskq_tests::{Db, refused};

use crate::{rerun, states, suspend};

#[test]
fn one_in_progress_downstream_is_the_refusal() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b", "depends_on": ["a"]},
        {"id": "c", "action": "c", "depends_on": ["b"]},
    ]));
    session.perform("a", "completed");
    session.perform("b", "completed");
    let held = session.own_one("c");
    for ids in ["{a}", "{b}", "{c,a}"] {
        let error =
            refused(&mut session, "TQ005", "\"c\"", &format!("SELECT taskq.rerun_tasks('{ids}')"), &[]);
        assert!(error.detail().unwrap().contains("in progress"));
    }
    assert_eq!(session.one::<i64>("SELECT taskq.rerun_tasks('{b}', downstream => false)"), 1);
    session.complete(&held);
    assert_eq!(rerun(&mut session, &["a"]), 1);
    assert_eq!(states(&mut session, ["a", "b", "c"]), ["ready", "blocked", "completed"]);
}

#[test]
fn one_in_progress_that_was_suspended_for_it_is_none() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "s", "action": "s"}, {"id": "x", "action": "x"}]));
    suspend(&mut session, "x", &["s"]);
    session.perform("s", "completed");
    let held = session.own_one("x");
    assert_eq!(rerun(&mut session, &["s"]), 1);
    session.perform("s", "completed");
    session.give_with("x", held.token, "pending", AT_ONCE).unwrap();
    assert_eq!(session.state("x"), "ready");
}

#[test]
fn one_that_has_lost_another_that_stays_is_the_refusal() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "z", "action": "z"},
        {"id": "b", "action": "b", "depends_on": ["a", "z"]},
        {"id": "c", "action": "c", "depends_on": ["a", {"id": "z", "condition": "settled"}]},
    ]));
    session.perform("a", "completed");
    session.perform("z", "aborted");
    session.perform("c", "completed");
    for ids in ["{a}", "{b}"] {
        let error =
            refused(&mut session, "TQ005", "\"b\"", &format!("SELECT taskq.rerun_tasks('{ids}')"), &[]);
        assert!(error.detail().unwrap().contains("\"z\""), "{error:?}");
    }
    refused(&mut session, "TQ005", "\"b\"", "SELECT taskq.rerun_tasks('{b}', false)", &[]);
    assert_eq!(rerun(&mut session, &["a", "z"]), 4);
    assert_eq!(states(&mut session, ["a", "z", "b", "c"]), ["ready", "ready", "blocked", "blocked"]);
}

#[test]
fn one_that_needs_more_than_can_still_be_had_is_the_refusal() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b"},
        {"id": "d", "action": "d", "depends_on": ["a", "b"], "num_required": 2},
    ]));
    session.perform("b", "completed");
    session.perform("a", "aborted");
    refused(&mut session, "TQ005", "\"d\"", "SELECT taskq.rerun_tasks('{b}')", &[]);
    assert_eq!(rerun(&mut session, &["a"]), 2);
}

#[test]
fn ids_that_are_null_are_the_refusal() {
    let (_db, [mut session]) = Db::connected();
    refused(&mut session, "22004", "\"task_ids\"", "SELECT taskq.rerun_tasks(NULL)", &[]);
    assert_eq!(session.one::<i64>("SELECT taskq.rerun_tasks(task_ids => '{}', downstream => NULL)"), 0);
}

#[test]
fn a_cycle_that_was_closed_while_it_was_settled_is_the_refusal() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b", "depends_on": ["a"]},
    ]));
    session.perform("a", "completed");
    session.perform("b", "completed");
    // Only of settled tasks may such be made: a depends on what runs after it.
    session.insert(json!([{"id": "c", "action": "c", "depends_on": ["b"]}])).unwrap();
    session.run(
        "INSERT INTO taskq.dependency (after_no, run_no, wait_no, condition, state, suspending)
         SELECT c.task_no, a.task_no, 0, 'c', 'w', false FROM taskq.task AS a, taskq.task AS c WHERE a.id = 'a' AND c.id = 'c'",
    );
    refused(&mut session, "TQ004", "\"a\"", "SELECT taskq.rerun_tasks('{a}')", &[]);
    session
        .run("DELETE FROM taskq.dependency WHERE run_no = (SELECT task_no FROM taskq.task WHERE id = 'a')");
}
