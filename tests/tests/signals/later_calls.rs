//! Signals that were left to a transaction which has a counter: its later calls know of them.
//!
//! Why: a parent ends while an earlier call of a transaction has its dependent locked. What the next call does to that dependent it
//! does to one that has been freed, completed or aborted by then. On wrong code it ends it a second time, in another way, or
//! refuses what is allowed.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

/// `c` waits for `p`, which a worker performs, and `m` is a milestone after it. The transaction of `holder` has both
/// locked when `p` ends.
fn ended_meanwhile(db: &Db, code: &str) -> Session {
    let (mut holder, mut worker) = (db.connect(), db.connect());
    worker
        .insert(json!([
            {"id": "p", "action": "x"}, {"id": "c", "action": "y", "depends_on": ["p"]},
            {"id": "m", "action": "y", "spontaneous": true, "unique_by": "k", "depends_on": ["p"]}]))
        .unwrap();
    let grant = worker.own_one("x");
    holder.run("BEGIN");
    holder.run("SELECT taskq.update_tasks('{c,m}', metadata => '{\"held\": true}')");
    worker.give("p", grant.token, code).unwrap();
    assert_eq!(worker.state("c"), "blocked", "it is the holder's to count");
    holder
}

#[test]
fn what_has_aborted_is_not_cancelled() {
    let db = Db::new();
    let mut holder = ended_meanwhile(&db, "aborted");
    assert_eq!(holder.cancel(&["c"]).unwrap(), 0);
    holder.run("COMMIT");
    assert_eq!(
        holder.one::<String>("SELECT status FROM taskq.tasks WHERE id = 'c'"),
        "dependency \"p\" aborted"
    );
}

#[test]
fn what_has_aborted_is_not_changed() {
    let db = Db::new();
    let mut holder = ended_meanwhile(&db, "aborted");
    let error = holder.batch_execute("SELECT taskq.update_tasks('{c}', priority => 1)").unwrap_err();
    assert_eq!(sqlstate(&error), "TQ005");
}

#[test]
fn what_is_free_can_be_completed_by_hand() {
    let db = Db::new();
    let mut holder = ended_meanwhile(&db, "completed");
    assert_eq!(holder.one::<String>("SELECT taskq.complete_task('c')::text"), "completed");
    holder.run("COMMIT");
    assert_eq!(holder.state("c"), "completed");
}

/// A task that waits for a milestone that has been reached is free, whatever becomes of the milestone afterwards.
#[test]
fn a_milestone_that_was_reached_is_not_replaced_as_one_that_was_not() {
    let db = Db::new();
    let mut holder = ended_meanwhile(&db, "completed");
    holder.insert(json!([{"id": "n", "action": "z", "depends_on": ["m"]}])).unwrap();
    holder.replace(json!([{"id": "m", "action": "y"}])).unwrap();
    holder.run("COMMIT");
    assert_eq!(holder.state("n"), "ready");
    assert_eq!(holder.state("m"), "ready", "the new one");
}

/// On wrong code it is aborted, as one that gives way.
#[test]
fn a_milestone_that_was_reached_does_not_give_its_key_up() {
    let db = Db::new();
    let mut holder = ended_meanwhile(&db, "completed");
    let newer = json!([{"id": "n", "action": "y", "unique_by": {"key": "k", "on_conflict": "replace"}}]);
    holder.insert(newer).unwrap();
    holder.run("COMMIT");
    assert_eq!(holder.state("n"), "ready");
    assert_eq!(holder.state("m"), "completed");
}

/// On wrong code it is made to wait for what is inserted, though it has been reached.
#[test]
fn a_milestone_that_was_reached_waits_for_nothing_more() {
    let db = Db::new();
    let mut holder = ended_meanwhile(&db, "completed");
    let before = json!([{"id": "n", "action": "y", "to_signal_after": ["m"]}]);
    let error = holder.insert(before).unwrap_err();
    assert_eq!(sqlstate(&error), "TQ005", "{error}");
}

#[test]
fn what_has_nothing_left_to_wait_for_is_deleted_alone() {
    let db = Db::new();
    let mut holder = ended_meanwhile(&db, "completed");
    holder.insert(json!([{"id": "n", "action": "z", "depends_on": ["m"]}])).unwrap();
    // Blocked, `n` would go with `m`; it was free before.
    assert_eq!(holder.delete(&["m"]).unwrap(), 1);
    holder.run("COMMIT");
    assert_eq!(holder.state("n"), "ready");
}

#[test]
fn a_group_is_cancelled_without_what_has_ended() {
    let (_db, [mut holder, mut worker]) = Db::connected();
    worker
        .insert(json!([
            {"id": "p", "action": "x"}, {"id": "c", "action": "y", "group_id": "g", "depends_on": ["p"]},
            {"id": "d", "action": "y", "group_id": "g"}]))
        .unwrap();
    let grant = worker.own_one("x");
    holder.run("BEGIN; SELECT taskq.update_tasks('{c}', priority => 3)");
    worker.give("p", grant.token, "aborted").unwrap();
    assert_eq!(holder.one::<i64>("SELECT taskq.cancel_group('g')"), 1);
    holder.run("COMMIT");
    assert_eq!(
        holder.one::<String>("SELECT status FROM taskq.tasks WHERE id = 'c'"),
        "dependency \"p\" aborted"
    );
}
