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
fn whatever_ends_a_performance_frees_its_place() {
    let ends = [
        "SELECT taskq.cancel_tasks('{x1,x2}')",
        "SELECT * FROM taskq.return_tasks('{x1,x2}', $tokens, 'aborted')",
        "SELECT * FROM taskq.return_tasks('{x1,x2}', $tokens, 'pending', retry_after => '0')",
        "SELECT * FROM taskq.return_tasks('{x1,x2}', $tokens, 'pending', retry_after => '1 hour')",
        "SELECT taskq.cancel_group('g')",
        "SELECT taskq.reset_group('g')",
        "SET taskq.now = '2030-01-01 00:01:01Z'",
    ];
    for end in ends {
        let db = Db::new();
        let mut session = db.connect();
        at(&mut session, 0.0);
        call(&mut session, "set_action('x', max_concurrency => 2)");
        session
            .insert(
                json!([{"id": "x1", "action": "x", "group_id": "g"}, {"id": "x2", "action": "x", "group_id": "g"}]),
            )
            .unwrap();
        let grants = session.own_with("w", 2, &["x"], "lease => '1 minute'").unwrap();
        session.insert(json!([{"id": "x3", "action": "x"}, {"id": "x4", "action": "x"}, {"id": "x5", "action": "x"}])).unwrap();
        let tokens = format!("'{{{},{}}}'::uuid[]", grants[0].token, grants[1].token);
        session.run(&end.replace("$tokens", &tokens));
        assert_eq!(session.own("w", 5, &["x"]).unwrap().len(), 2, "after {end}");
        assert_eq!(session.one::<i64>("SELECT slots_held FROM taskq.actions WHERE action = 'x'"), 2, "{end}");
    }
}

#[test]
fn a_raised_limit_lets_more_go_and_a_lowered_one_waits_for_the_surplus() {
    let db = Db::new();
    let mut session = limited(&db);
    let mut held = session.own("w", 10, &["x"]).unwrap();
    call(&mut session, "set_action('x', max_concurrency => 4)");
    held.extend(session.own("w", 10, &["x"]).unwrap());
    assert_eq!(held.len(), 4);
    call(&mut session, "set_action('x', max_concurrency => 1)");
    for rest in [3, 2, 1] {
        session.complete(&held.pop().unwrap());
        assert!(session.own("w", 10, &["x"]).unwrap().is_empty(), "{rest} are still held");
    }
    session.complete(&held.pop().unwrap());
    assert_eq!(session.own("w", 10, &["x"]).unwrap().len(), 1);
}

#[test]
fn a_lowered_limit_counts_the_surplus_whichever_places_end_first() {
    for first in [0, 3] {
        let db = Db::new();
        let mut session = db.connect();
        call(&mut session, "set_action('x', max_concurrency => 4)");
        session.insert(tasks("x", 10)).unwrap();
        let mut held = session.own("w", 10, &["x"]).unwrap();
        call(&mut session, "set_action('x', max_concurrency => 2)");
        session.complete(&held.remove(first));
        assert!(session.own("w", 10, &["x"]).unwrap().is_empty(), "three are held of two");
        call(&mut session, "set_action('x', max_concurrency => 4)");
        assert_eq!(session.own("w", 10, &["x"]).unwrap().len(), 1, "three were held of four");
    }
}

#[test]
fn a_cleared_limit_is_none_and_a_new_one_counts_all_that_is_held() {
    let db = Db::new();
    let mut session = limited(&db);
    let mut held = session.own("w", 10, &["x"]).unwrap();
    call(&mut session, "set_action('x', clear => '{max_concurrency}')");
    held.extend(session.own("w", 3, &["x"]).unwrap());
    assert_eq!(held.len(), 5);
    call(&mut session, "set_action('x', max_concurrency => 5)");
    assert!(session.own("w", 10, &["x"]).unwrap().is_empty());
    session.complete(&held[4]);
    assert_eq!(session.own("w", 10, &["x"]).unwrap().len(), 1);
    session.complete(&held[0]);
    assert_eq!(session.own("w", 10, &["x"]).unwrap().len(), 1);
}

#[test]
fn a_limit_set_after_grants_counts_them() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(tasks("x", 10)).unwrap();
    let held = session.own("w", 3, &["x"]).unwrap();
    call(&mut session, "set_action('x', max_concurrency => 2)");
    session.complete(&held[0]);
    assert!(session.own("w", 10, &["x"]).unwrap().is_empty(), "two are held of two");
    session.complete(&held[1]);
    assert_eq!(session.own("w", 10, &["x"]).unwrap().len(), 1);
    session.give("x3", held[2].token, "pending").unwrap();
    assert_eq!(session.own("w", 10, &["x"]).unwrap().len(), 1);
}

#[test]
fn a_limit_of_zero_lets_nothing_go() {
    let db = Db::new();
    let mut session = limited(&db);
    call(&mut session, "set_action('x', max_concurrency => 0)");
    assert!(session.own("w", 10, &["x"]).unwrap().is_empty());
    call(&mut session, "set_action('x', max_concurrency => 1)");
    assert_eq!(session.own("w", 10, &["x"]).unwrap().len(), 1);
}

#[test]
fn a_late_extension_takes_a_place_or_is_refused() {
    let db = Db::new();
    let mut session = db.connect();
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
    let db = Db::new();
    let mut session = db.connect();
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
    let db = Db::new();
    let (mut a, mut b) = (db.connect(), db.connect());
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
    let db = Db::new();
    let mut session = db.connect();
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
