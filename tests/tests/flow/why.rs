//! `why` names what flow control holds a task back for, with the name and the facts.
//!
//! Why: a ready task that no worker gets is the question an operator asks most. On wrong code a reason is missing, or
//! is given for a task that could be had.

use serde_json::json;
use taskq_tests::{Db, Session};

use crate::{at, call, owned};

fn why(session: &mut Session, id: &str) -> Vec<String> {
    session.query("SELECT * FROM taskq.why($1)", &[&id]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// Asserts that one of the reasons contains all of these words, before and after a claim has met the task.
fn tells(session: &mut Session, id: &str, action: &str, words: &[&str]) {
    for look in ["before a claim", "after a claim"] {
        let reasons = why(session, id);
        let told = reasons.iter().any(|reason| words.iter().all(|word| reason.contains(word)));
        assert!(told, "{look}: why({id}) tells of {words:?}: {reasons:#?}");
        assert!(owned(session, 9, &[action]).is_empty(), "{look}: {id} is held back");
    }
}

#[test]
fn each_reason_is_named_with_its_facts() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET timezone = 'UTC'");
    at(&mut session, 0.0);
    session
        .insert(json!([
            {"id": "group", "action": "g", "group_id": "tenant 7"}, {"id": "work", "action": "w", "workgroup": "api.example"},
            {"id": "pause", "action": "p"}, {"id": "full 1", "action": "f"}, {"id": "full 2", "action": "f"},
            {"id": "rate 1", "action": "r"}, {"id": "rate 2", "action": "r"},
        ]))
        .unwrap();
    call(&mut session, "pause_group('tenant 7')");
    call(&mut session, "delay_workgroup('api.example', '1 hour')");
    call(&mut session, "pause_action('p')");
    call(&mut session, "set_action('f', max_concurrency => 1)");
    call(&mut session, "set_action('r', rate_limit => 1, rate_period => '1 day')");
    session.own("ann", 1, &["f"]).unwrap();
    session.own("ann", 1, &["r"]).unwrap();
    tells(&mut session, "group", "g", &["group", "\"tenant 7\"", "paused"]);
    tells(&mut session, "pause", "p", &["action", "\"p\"", "paused"]);
    tells(&mut session, "full 2", "f", &["limit", "1 of 1", "\"ann\""]);
    tells(&mut session, "rate 2", "r", &["rate limit", "1 per", "the next may go at 2030-01-02 00:00:00"]);
    tells(&mut session, "work", "w", &["2030-01-01 01:00:00"]);
    assert_eq!(why(&mut session, "full 1").len(), 1);
}

#[test]
fn why_names_no_holder_of_a_limit_of_zero() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    call(&mut session, "set_action('x', max_concurrency => 0)");
    tells(&mut session, "a", "x", &["the limit of its action is full: 0 of 0 tasks are in progress"]);
    assert!(!why(&mut session, "a").iter().any(|reason| reason.contains("held by")), "by no worker");
}

/// On wrong code tasks that are kept longer than those of this action hide it, and the operator looks for a worker that is there.
#[test]
fn a_grant_a_moment_ago_is_seen_however_long_others_are_kept() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT count(*) FROM taskq.insert_many('kept', (SELECT array_agg(i::text) FROM generate_series(1, 1100) AS i))");
    for _ in 0..2 {
        session.run("SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 1000, '{kept}')");
    }
    session
        .insert(json!([{"id": "a1", "action": "x", "retention": "1 hour"}, {"id": "a2", "action": "x"}]))
        .unwrap();
    session.perform("x", "completed");
    let reasons = why(&mut session, "a2");
    assert!(
        reasons.iter().any(|reason| reason.starts_with("the last grant of a task of action \"x\"")),
        "{reasons:?}"
    );
}

#[test]
fn why_names_the_task_that_a_rider_or_a_busy_merge_key_waits_for() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "lead", "action": "x", "merge_key": "k"}, {"id": "ride", "action": "x", "merge_key": "k"}]),
    );
    session.own_one("x");
    session.insert(json!([{"id": "later", "action": "x", "merge_key": "k"}])).unwrap();
    owned(&mut session, 1, &["x"]);
    tells(&mut session, "ride", "x", &["\"lead\"", "key"]);
    tells(&mut session, "later", "x", &["\"lead\"", "\"k\""]);
}

#[test]
fn a_spontaneous_task_is_not_held_back_by_its_time() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "before", "action": "x"},
        {"id": "marker", "action": "m", "spontaneous": true, "delay": "1 day", "depends_on": ["before"]},
        {"id": "later", "action": "x", "delay": "1 day", "depends_on": ["before"]},
    ]));
    let of_time =
        |reasons: Vec<String>| reasons.iter().filter(|r| r.contains("not to be owned before")).count();
    assert_eq!(of_time(why(&mut session, "marker")), 0);
    assert_eq!(of_time(why(&mut session, "later")), 1);
}

#[test]
fn a_task_that_can_be_had_has_no_such_reason() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_concurrency => 2, rate_limit => 5, rate_period => '1 minute')");
    session
        .insert(json!([{"id": "a", "action": "x", "group_id": "g", "workgroup": "w", "merge_key": "k"}]))
        .unwrap();
    call(&mut session, "pause_group('g')");
    call(&mut session, "resume_group('g')");
    let reasons = why(&mut session, "a");
    for word in ["paused", "held back", "limit", "same merge key"] {
        assert!(!reasons.iter().any(|reason| reason.contains(word)), "{reasons:?}");
    }
}

/// A commit that was forgotten: to all other sessions the task is ready.
#[test]
fn why_names_the_open_transaction_that_has_the_task_in_hand() {
    let (_db, [mut session, mut open]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x", "delay": "1 ms"}]));
    let in_hand = |session: &mut Session, id: &str| -> Vec<String> {
        why(session, id).into_iter().filter(|reason| reason.contains("has it in hand")).collect()
    };
    assert!(in_hand(&mut session, "a").is_empty());
    open.run("BEGIN; SAVEPOINT s");
    assert_eq!(owned(&mut open, 2, &["x"]), ["a", "b"]);
    for id in ["a", "b"] {
        let told = in_hand(&mut session, id);
        // What had become due was moved in a subtransaction that has ended, and of whose id no lock tells the process any more.
        let pid = told.first().is_some_and(|told| told.contains(&format!("(pid {})", open.pid())));
        assert!(told.len() == 1 && (pid || id == "b"), "{id}: {told:?}");
    }
    open.run("RELEASE s");
    assert_eq!((in_hand(&mut session, "a").len(), in_hand(&mut session, "b").len()), (1, 1));
    open.run("ROLLBACK");
    assert!(in_hand(&mut session, "a").is_empty() && in_hand(&mut session, "b").is_empty());
}
