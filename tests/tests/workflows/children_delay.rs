//! `delay_children`: the children, and the direct dependents that still wait, are not owned before that. The delay must
//! neither get lost on the way through `blocked`, nor shorten a later time, nor reach further than the direct dependents.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::states;

const START: &str = "2030-01-01 00:00:00Z";
const BEFORE: &str = "2030-01-01 00:59:59Z";
const AFTER: &str = "2030-01-01 01:00:01Z";

/// What can be owned of the action at that time; it is given back.
fn owned_at(session: &mut Session, action: &str, now: &str) -> Vec<String> {
    session.set_now(Some(now));
    session.run("BEGIN");
    let ids = super::ready(session, action);
    session.run("ROLLBACK");
    ids
}

fn give_delayed(session: &mut Session, more: &str) {
    let grant = session.own_one("parent");
    let arguments = format!("delay_children => '1 hour'{more}");
    session.give_with(&grant.task_id, grant.token, "completed", &arguments).unwrap();
}

#[test]
fn children_and_direct_dependents_are_not_owned_before_the_delay_is_over() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some(START));
    session
        .insert(json!([{"id": "p", "action": "parent"}, {"id": "d", "action": "x", "depends_on": ["p"]},
                       {"id": "unrelated", "action": "x"}]))
        .unwrap();
    give_delayed(&mut session, ", children => '[{\"id\": \"c\", \"action\": \"x\"}]'");
    assert_eq!(states(&mut session, ["c", "d", "unrelated"]), ["scheduled", "scheduled", "ready"]);
    assert_eq!(owned_at(&mut session, "x", BEFORE), ["unrelated"]);
    assert_eq!(owned_at(&mut session, "x", AFTER), ["c", "d", "unrelated"]);
    // The next step of a dependent is not delayed once more.
    session.insert(json!([{"id": "dd", "action": "y", "depends_on": ["d"]}])).unwrap();
    let d = super::hold(&mut session, "x").into_iter().find(|grant| grant.task_id == "d").unwrap();
    session.complete(&d);
    assert_eq!(session.state("dd"), "ready");
}

#[test]
fn dependents_that_wait_for_children_or_others_keep_the_delay() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some(START));
    session
        .insert(json!([{"id": "p", "action": "parent"}, {"id": "q", "action": "q"},
                       {"id": "d", "action": "x", "depends_on": ["p", "q"]}]))
        .unwrap();
    give_delayed(
        &mut session,
        ", children_block => true, children => '[{\"id\": \"c\", \"action\": \"c\"}]'",
    );
    session.perform("q", "completed");
    assert_eq!(states(&mut session, ["c", "d"]), ["scheduled", "blocked"]);
    let told: bool =
        session.one("SELECT bool_or(w LIKE '%before 2030-01-01 01:00:00%') FROM taskq.why('d') AS w");
    assert!(told, "why tells of the delay of a blocked task");
    // Completed by hand before its time: the dependent is free, and its own delay is not over.
    session.run("SELECT taskq.complete_task('c')");
    assert_eq!(session.state("d"), "scheduled");
    assert!(owned_at(&mut session, "x", BEFORE).is_empty());
    assert_eq!(owned_at(&mut session, "x", AFTER), ["d"]);
}

#[test]
fn the_delay_counts_from_the_return_not_from_when_the_dependent_is_free() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some(START));
    session
        .insert(json!([{"id": "p", "action": "parent"}, {"id": "q", "action": "q"},
                       {"id": "d", "action": "x", "depends_on": ["p", "q"]}]))
        .unwrap();
    give_delayed(&mut session, "");
    session.set_now(Some(AFTER));
    session.perform("q", "completed");
    assert_eq!(session.state("d"), "ready");
}

#[test]
fn of_two_times_the_later_one_counts() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some(START));
    let late = "2030-01-01 02:00:00Z";
    session
        .insert(json!([{"id": "p", "action": "parent"}, {"id": "p2", "action": "parent"},
                       {"id": "late", "action": "x", "not_before": late, "depends_on": ["p"]},
                       {"id": "twice", "action": "x", "depends_on": ["p", "p2"]}]))
        .unwrap();
    let children = json!([{"id": "late child", "action": "x", "not_before": late},
                          {"id": "soon child", "action": "x", "delay": "1 minute"}]);
    give_delayed(&mut session, &format!(", children => '{children}'"));
    let grant = session.own_one("parent");
    session.give_with("p2", grant.token, "completed", "delay_children => '1 minute'").unwrap();
    assert!(owned_at(&mut session, "x", BEFORE).is_empty());
    assert_eq!(owned_at(&mut session, "x", AFTER), ["soon child", "twice"]);
    assert_eq!(
        owned_at(&mut session, "x", "2030-01-01 02:00:01Z"),
        ["late", "late child", "soon child", "twice"]
    );
}
