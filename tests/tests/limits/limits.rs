//! `max_concurrency`, step by step: who counts, and what gives a place back.
//!
//! Why: a limit that leaks a place blocks an action for ever ("blocked although free"), and one that frees a place twice
//! runs eleven of `limit: 1`. On wrong code the number of grants after one of the steps is not the number of places left.

use serde_json::json;
use taskq_tests::{Db, Session};

use crate::{at, call, count, owned, tasks};

/// A session with the limit 2 on action `x`, and ten tasks of it.
fn limited(db: &Db) -> Session {
    let mut session = db.connect();
    call(&mut session, "set_action('x', max_concurrency => 2)");
    session.insert(tasks("x", 10)).unwrap();
    session
}

#[test]
fn grants_of_open_transactions_count_and_rolled_back_ones_do_not() {
    let db = Db::new();
    let mut a = limited(&db);
    let mut b = db.connect();
    a.run("BEGIN");
    assert_eq!(a.own("a", 5, &["x"]).unwrap().len(), 2);
    assert!(b.own("b", 5, &["x"]).unwrap().is_empty());
    a.run("ROLLBACK");
    assert_eq!(b.own("b", 5, &["x"]).unwrap().len(), 2);
    assert!(a.own("a", 5, &["x"]).unwrap().is_empty());
}

#[test]
fn a_grant_that_is_rolled_back_to_a_savepoint_gives_its_place_back() {
    let db = Db::new();
    let mut a = limited(&db);
    let mut b = db.connect();
    a.run("BEGIN");
    a.own("a", 1, &["x"]).unwrap();
    a.run("SAVEPOINT s");
    assert_eq!(a.own("a", 5, &["x"]).unwrap().len(), 1);
    a.run("ROLLBACK TO s");
    assert_eq!(b.own("b", 5, &["x"]).unwrap().len(), 1);
    a.run("COMMIT");
    assert!(a.own("a", 5, &["x"]).unwrap().is_empty());
}

#[test]
fn a_return_frees_its_place_when_it_commits_and_not_when_it_rolls_back() {
    for code in ["completed", "aborted", "pending"] {
        let db = Db::new();
        let mut a = limited(&db);
        let mut b = db.connect();
        let grants = a.own("a", 5, &["x"]).unwrap();
        a.run("BEGIN");
        a.give(&grants[0].task_id, grants[0].token, code).unwrap();
        assert!(b.own("b", 5, &["x"]).unwrap().is_empty(), "{code}: not committed yet");
        a.run("ROLLBACK");
        assert!(b.own("b", 5, &["x"]).unwrap().is_empty(), "{code}: rolled back");
        a.give(&grants[0].task_id, grants[0].token, code).unwrap();
        assert_eq!(b.own("b", 5, &["x"]).unwrap().len(), 1, "{code}");
    }
}

#[test]
fn a_late_extension_takes_a_place_or_is_refused() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_concurrency => 1)");
    at(&mut session, 0.0);
    session.insert(tasks("x", 2)).unwrap();
    let late = session.own_one_with("x", "lease => '1 minute'");
    at(&mut session, 61.0);
    let other = session.own_one_with("x", "lease => '1 minute'");
    assert_eq!(other.task_id, "x2", "what came back stands behind");
    assert_eq!(session.extend("late", &[("x1", late.token)], "1 hour").unwrap(), [("x1".to_owned(), false)]);
    session.complete(&other);
    assert_eq!(session.extend("late", &[("x1", late.token)], "1 hour").unwrap(), [("x1".to_owned(), true)]);
    session.insert(json!([{"id": "x3", "action": "x"}])).unwrap();
    assert!(owned(&mut session, 1, &["x"]).is_empty(), "x1 has the only place again");
    session.complete(&late);
    assert_eq!(owned(&mut session, 1, &["x"]), ["x3"]);
}

#[test]
fn a_late_return_frees_no_place_of_others() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_concurrency => 1)");
    at(&mut session, 0.0);
    session.insert(tasks("x", 3)).unwrap();
    let late = session.own_one_with("x", "lease => '1 minute'");
    at(&mut session, 61.0);
    let other = session.own_one_with("x", "lease => '1 minute'");
    session.complete(&late);
    assert!(owned(&mut session, 1, &["x"]).is_empty(), "x2 is held");
    session.complete(&other);
    assert_eq!(owned(&mut session, 1, &["x"]), ["x3"]);
}

#[test]
fn a_limit_holds_over_first_tasks_that_two_transactions_inserted_at_once() {
    let (_db, [mut a, mut b]) = Db::connected();
    call(&mut a, "set_action('x', max_concurrency => 3)");
    a.run("BEGIN");
    a.insert(json!([{"id": "a1", "action": "x"}, {"id": "a2", "action": "x"}])).unwrap();
    b.insert(json!([{"id": "b1", "action": "x"}, {"id": "b2", "action": "x"}])).unwrap();
    a.run("COMMIT");
    let granted = owned(&mut a, 10, &["x"]).len() + owned(&mut b, 10, &["x"]).len();
    assert_eq!(granted, 3);
    assert!(owned(&mut b, 10, &["x"]).is_empty());
    assert_eq!(count(&mut a, "cancel_tasks('{a1,a2,b1,b2}')"), 4);
}

/// As many places below the limit stay free as are held above it, however few tasks a worker asks for.
#[test]
fn a_claim_of_one_task_counts_what_is_held_above_a_lowered_limit() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_concurrency => 6)");
    session.insert(tasks("x", 10)).unwrap();
    let held = session.own("w", 6, &["x"]).unwrap();
    call(&mut session, "set_action('x', max_concurrency => 4)");
    let below = "SELECT t.id FROM taskq.slot s JOIN taskq.task t USING (task_no) ORDER BY s.slot_no LIMIT 3";
    let below: Vec<String> = session.query(below, &[]).unwrap().iter().map(|row| row.get(0)).collect();
    let mut below = below.iter().map(|id| held.iter().find(|grant| grant.task_id == *id).unwrap());
    below.by_ref().take(2).for_each(|grant| session.complete(grant));
    assert!(owned(&mut session, 1, &["x"]).is_empty(), "four are held, two of them above the limit");
    below.for_each(|grant| session.complete(grant));
    assert_eq!(owned(&mut session, 1, &["x"]), ["x7"]);
    assert!(owned(&mut session, 1, &["x"]).is_empty());
}
