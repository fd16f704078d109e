//! Children: tasks that a return brings into being, in its own transaction. What can go wrong: a child that outlives a
//! rollback, a dependent that slips through between the parent's end and the children's birth, a dependent that waits
//! for the child on the wrong condition, a waiter that waits for the children although it asked for the parent.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

use super::{ready, states, work_off};

/// A parent in progress with a dependent by each condition.
fn family(session: &mut Session) -> taskq_tests::Grant {
    let mut tasks = vec![json!({"id": "p", "action": "parent"})];
    for condition in ["completed", "settled", "aborted"] {
        let edge = json!([{"id": "p", "condition": condition}]);
        tasks.push(json!({"id": condition, "action": "dependent", "depends_on": edge}));
    }
    session.insert(json!(tasks)).unwrap();
    session.own_one("parent")
}

/// Returns with children that block.
fn give_blocking(session: &mut Session, grant: &taskq_tests::Grant, code: &str, children: &Value) {
    let arguments = format!("children_block => true, children => '{children}'");
    assert_eq!(session.give_with(&grant.task_id, grant.token, code, &arguments).unwrap(), code);
}

const DEPENDENTS: [&str; 3] = ["completed", "settled", "aborted"];

#[test]
fn children_are_born_in_the_transaction_of_the_return() {
    let (_db, [mut session, mut other]) = Db::connected();
    let grant = family(&mut session);
    session.run("BEGIN");
    let children =
        "children => '[{\"id\": \"c\", \"action\": \"child\", \"body\": 1.50}, {\"action\": \"child\"}]'";
    assert_eq!(session.give_with("p", grant.token, "completed", children).unwrap(), "completed");
    assert_eq!(session.state("c"), "ready");
    assert_eq!(states(&mut other, ["p", "c"]), ["in-progress", "gone"]);
    session.run("COMMIT");
    assert_eq!(states(&mut other, ["p", "c"]), ["completed", "ready"]);
    // Without children_block the dependents do not wait for them.
    assert_eq!(states(&mut other, DEPENDENTS), ["ready", "ready", "aborted"]);
    let held = super::hold(&mut other, "child");
    assert_eq!(held.len(), 2, "the one without an id has got one");
    assert_eq!(held.iter().find(|grant| grant.task_id == "c").unwrap().body.as_deref(), Some("1.50"));
}

#[test]
fn with_children_block_dependents_wait_for_the_children_too() {
    let (_db, [mut session]) = Db::connected();
    let grant = family(&mut session);
    give_blocking(
        &mut session,
        &grant,
        "completed",
        &json!([{"id": "c1", "action": "c1"}, {"id": "c2", "action": "c2"}]),
    );
    // The dependent that wants p to abort has lost. The others go on waiting, and a call that waits for p itself does
    // not.
    assert_eq!(states(&mut session, DEPENDENTS), ["blocked", "blocked", "aborted"]);
    assert_eq!(session.wait("p", "0").unwrap().unwrap().status_code, "completed");
    assert_eq!(session.task("completed").unwrap().total_dependencies, 3);
    session.perform("c1", "completed");
    assert_eq!(states(&mut session, DEPENDENTS), ["blocked", "blocked", "aborted"]);
    session.perform("c2", "completed");
    assert_eq!(states(&mut session, DEPENDENTS), ["ready", "ready", "aborted"]);
}

#[test]
fn a_child_that_aborts_counts_by_the_condition_of_its_parent() {
    let (_db, [mut session]) = Db::connected();
    let grant = family(&mut session);
    give_blocking(&mut session, &grant, "completed", &json!([{"id": "c", "action": "c"}]));
    session.perform("c", "aborted");
    assert_eq!(states(&mut session, DEPENDENTS), ["aborted", "ready", "aborted"]);
    assert_eq!(session.task("completed").unwrap().status.as_deref(), Some("dependency \"c\" aborted"));
    assert_eq!(session.task("settled").unwrap().num_failures, 1);
}

#[test]
fn children_of_a_parent_that_aborts_hold_back_dependents_on_its_abort() {
    for child_end in ["completed", "aborted"] {
        let (_db, [mut session]) = Db::connected();
        let grant = family(&mut session);
        give_blocking(&mut session, &grant, "aborted", &json!([{"id": "c", "action": "c"}]));
        assert_eq!(states(&mut session, DEPENDENTS), ["aborted", "blocked", "blocked"]);
        assert_eq!(session.state("c"), "ready", "an aborted parent's children live");
        session.perform("c", child_end);
        assert_eq!(states(&mut session, DEPENDENTS), ["aborted", "ready", "ready"]);
        let failures = 1 + i32::from(child_end == "aborted");
        assert_eq!(session.task("aborted").unwrap().num_failures, failures);
    }
}

#[test]
fn children_of_children_block_as_well_to_any_depth() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "0", "action": "grow"}, {"id": "end", "action": "end", "depends_on": ["0"]}]),
    );
    for depth in 1..=30 {
        let grant = session.own_one("grow");
        give_blocking(
            &mut session,
            &grant,
            "completed",
            &json!([{"id": depth.to_string(), "action": "grow"}]),
        );
        assert_eq!(session.state("end"), "blocked", "at depth {depth}");
    }
    session.perform("grow", "completed");
    let end = session.task("end").unwrap();
    assert_eq!((end.state.as_str(), end.num_signals, end.total_dependencies), ("ready", 31, 31));
}

#[test]
fn children_may_depend_on_each_other_on_their_parent_and_on_stored_tasks() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "p", "action": "parent"}, {"id": "other", "action": "other"},
                {"id": "end", "action": "end", "depends_on": ["p"]}]));
    let grant = session.own_one("parent");
    let children = json!([
        {"id": "c3", "action": "work", "depends_on": ["c1", "c2"]},
        {"id": "c1", "action": "work", "depends_on": ["p"]},
        {"id": "c2", "action": "work", "depends_on": ["other"]},
        {"id": "c4", "action": "work", "spontaneous": true, "depends_on": ["c3"]},
        {"id": "undo", "action": "work", "depends_on": [{"id": "p", "condition": "aborted"}]},
    ]);
    give_blocking(&mut session, &grant, "completed", &children);
    // `undo` is lost before it began, and with it the task that needs all children to complete.
    assert_eq!(
        states(&mut session, ["c1", "c2", "c3", "c4", "undo", "end"]),
        ["ready", "blocked", "blocked", "blocked", "aborted", "aborted"]
    );
    session.perform("other", "completed");
    assert_eq!(work_off(&mut session, &["work"]), [vec!["c1", "c2"], vec!["c3"]]);
    assert_eq!(session.state("c4"), "completed");
}

#[test]
fn a_child_that_depends_on_its_parent_counts_it_once() {
    let (_db, [mut session]) = Db::connected();
    for (block, end) in [(false, "completed"), (true, "completed"), (true, "aborted")] {
        session.insert(json!([{"id": "p", "action": "parent"}, {"id": "open", "action": "open"}])).unwrap();
        let grant = session.own_one("parent");
        let after = json!([{"id": "p", "condition": "settled"}, "open"]);
        let children = json!([{"id": "c", "action": "c", "depends_on": after},
                              {"id": "s", "action": "s", "spontaneous": true, "depends_on": after}]);
        let arguments = format!("children_block => {block}, children => '{children}'");
        session.give_with("p", grant.token, end, &arguments).unwrap();
        for id in ["c", "s"] {
            let task = session.task(id).unwrap();
            let failures = i32::from(end == "aborted");
            assert_eq!((task.state.as_str(), task.num_signals, task.num_failures), ("blocked", 1, failures));
        }
        session.perform("open", "completed");
        assert_eq!(states(&mut session, ["c", "s"]), ["ready", "completed"]);
        session.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
    }
}

#[test]
fn a_child_that_names_a_dependent_itself_keeps_its_own_condition() {
    let (_db, [mut session]) = Db::connected();
    let grant = family(&mut session);
    let children =
        json!([{"id": "c", "action": "c", "to_signal_after": [{"id": "completed", "condition": "settled"}]}]);
    give_blocking(&mut session, &grant, "completed", &children);
    session.perform("c", "aborted");
    assert_eq!(states(&mut session, ["completed", "settled"]), ["ready", "ready"]);
}

#[test]
fn children_that_are_settled_from_the_start_hold_back_no_dependent() {
    let (_db, [mut session]) = Db::connected();
    let grant = family(&mut session);
    let children = json!([{"id": "s", "action": "s", "spontaneous": true},
                          {"id": "s2", "action": "s", "spontaneous": true, "depends_on": ["p", "s"]}]);
    give_blocking(&mut session, &grant, "completed", &children);
    assert_eq!(
        states(&mut session, ["s", "s2", "completed", "settled"]),
        ["completed", "completed", "ready", "ready"]
    );
}

#[test]
fn dependents_that_have_ended_already_are_left_alone() {
    let (_db, [mut session]) = Db::connected();
    let grant = family(&mut session);
    session.cancel(&["completed"]).unwrap();
    give_blocking(&mut session, &grant, "completed", &json!([{"id": "c", "action": "c"}]));
    let task = session.task("completed").unwrap();
    assert_eq!((task.state.as_str(), task.total_dependencies), ("aborted", 1));
    session.perform("c", "completed");
    assert_eq!(ready(&mut session, "dependent"), ["settled"]);
}

#[test]
fn ten_thousand_children_block_one_dependent() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "p", "action": "x"}, {"id": "end", "action": "end", "depends_on": ["p"]}]),
    );
    session.run(
        "SELECT taskq.return_task(task_id, token, children_block => true, children =>
                   (SELECT jsonb_agg(jsonb_build_object('id', 'c' || i, 'action', 'c')) FROM generate_series(1, 10000) i))
           FROM taskq.own_tasks('w', 1, '{x}')",
    );
    assert_eq!(session.task("end").unwrap().total_dependencies, 10_001);
    assert_eq!(work_off(&mut session, &["c"]).iter().map(Vec::len).sum::<usize>(), 10_000);
    assert_eq!(session.state("end"), "ready");
}

/// `t` keeps the first end of `x`. On wrong code it waits for the children of the second, and aborts with them.
#[test]
fn children_of_an_end_that_counts_for_nothing_block_nothing() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "x", "action": "x"}, {"id": "y", "action": "y"},
            {"id": "t", "action": "t", "depends_on": ["x", "y"]}]));
    session.perform("x", "completed");
    session.run("SELECT taskq.rerun_tasks('{x}', downstream => false)");
    let grant = session.own_one("x");
    let children = "children => '[{\"id\": \"c\", \"action\": \"c\"}]', children_block => true";
    session.give_with("x", grant.token, "completed", children).unwrap();
    session.cancel(&["c"]).unwrap();
    session.perform("y", "completed");
    assert_eq!(session.state("t"), "ready");
}
