//! Groups: cancel, delete, retry, and the view `taskq.groups`.
//!
//! Why: what stands for many tasks must do to each what the call for one does, count what it changed, and treat those
//! outside by the same rules. On wrong code a state, a count or an SQLSTATE differs.

use serde_json::json;
use taskq_tests::{Db, Session, refused, sqlstate};

use crate::{at, count, owned};

/// Group `g`: done, failed, held, ready, blocked, later; and outside of it a dependent of `held` and one of `ready`.
fn group(db: &Db) -> Session {
    let mut session = db.connect();
    at(&mut session, 0.0);
    session
        .insert(json!([
            {"id": "done", "action": "d", "group_id": "g"}, {"id": "failed", "action": "f", "group_id": "g"},
            {"id": "held", "action": "h", "group_id": "g"}, {"id": "ready", "action": "r", "group_id": "g"},
            {"id": "blocked", "action": "b", "group_id": "g", "depends_on": ["ready"]},
            {"id": "later", "action": "l", "group_id": "g", "delay": "1 hour"},
            {"id": "lost", "action": "o", "group_id": "g", "depends_on": ["failed"]},
            {"id": "outside held", "action": "o", "depends_on": [{"id": "held", "condition": "settled"}]},
            {"id": "outside ready", "action": "o", "depends_on": ["ready"]},
            {"id": "other", "action": "r", "group_id": "h"},
        ]))
        .unwrap();
    session.perform("d", "completed");
    session.perform("f", "aborted");
    session
}

fn states(session: &mut Session) -> String {
    session.tasks().iter().map(|task| format!("{}={}", task.id, task.state)).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_view_counts_each_state_and_the_progress() {
    let db = Db::new();
    let mut session = group(&db);
    session.own_one("h");
    let row: String = session.one(
        "SELECT concat_ws(' ', paused, blocked, scheduled, ready, in_progress, completed, aborted, round(progress::numeric, 4)) \
         FROM taskq.groups WHERE group_id = 'g'",
    );
    assert_eq!(row, "f 1 1 1 1 1 2 0.4286");
    assert_eq!(session.all::<String>("SELECT group_id FROM taskq.groups ORDER BY 1"), ["g", "h"]);
    count(&mut session, "cancel_group('g')");
    assert_eq!(session.one::<f64>("SELECT progress::float8 FROM taskq.groups WHERE group_id = 'g'"), 1.0);
}

#[test]
fn cancel_aborts_what_is_not_settled_revokes_tokens_and_tells_those_outside() {
    let db = Db::new();
    let mut session = group(&db);
    let grant = session.own_one("h");
    assert_eq!(count(&mut session, "cancel_group('g')"), 4);
    assert_eq!(
        states(&mut session),
        "blocked=aborted done=completed failed=aborted held=aborted later=aborted lost=aborted other=ready \
         outside held=ready outside ready=aborted ready=aborted"
    );
    assert_eq!(sqlstate(&session.give("held", grant.token, "completed").unwrap_err()), "TQ001");
    assert_eq!(session.task("outside held").unwrap().num_failures, 1);
    assert_eq!(count(&mut session, "cancel_group('g')"), 0);
}

#[test]
fn delete_is_refused_while_one_is_in_progress_and_takes_orphans_along() {
    let db = Db::new();
    let mut session = group(&db);
    let grant = session.own_one("h");
    refused(&mut session, "TQ005", "held", "SELECT taskq.delete_group('g')", &[]);
    session.give("held", grant.token, "completed").unwrap();
    // Seven of the group, and the blocked one outside that is left with no dependency at all.
    assert_eq!(count(&mut session, "delete_group('g')"), 8);
    assert_eq!(states(&mut session), "other=ready outside held=ready");
    refused(&mut session, "TQ007", "g", "SELECT taskq.delete_group('g')", &[]);
}

#[test]
fn a_deleted_paused_group_is_not_paused_when_its_name_is_used_again() {
    let db = Db::new();
    let mut session = group(&db);
    count(&mut session, "pause_group('g')");
    assert!(owned(&mut session, 9, &["h", "l"]).is_empty());
    count(&mut session, "delete_group('g')");
    session.insert(json!([{"id": "new", "action": "n", "group_id": "g"}])).unwrap();
    assert_eq!(owned(&mut session, 9, &["n"]), ["new"]);
}

#[test]
fn retry_gives_aborted_tasks_new_tries_and_blocks_those_that_were_lost_again() {
    let db = Db::new();
    let mut session = group(&db);
    session.insert(json!([{"id": "spent", "action": "s", "group_id": "g", "max_tries": 1}])).unwrap();
    session.perform("s", "aborted");
    assert_eq!(count(&mut session, "retry_group('g')"), 3);
    assert_eq!(
        (session.state("failed"), session.state("lost"), session.state("spent"), session.state("done")),
        ("ready".to_owned(), "blocked".to_owned(), "ready".to_owned(), "completed".to_owned())
    );
    session.perform("f", "completed");
    assert_eq!(session.state("lost"), "ready");
    let grant = session.own_one("s");
    assert_eq!(session.give("spent", grant.token, "pending").unwrap(), "aborted", "one new try, not more");
    assert_eq!(count(&mut session, "retry_group('h')"), 0);
}

#[test]
fn retry_of_a_paused_group_keeps_it_paused() {
    let db = Db::new();
    let mut session = group(&db);
    count(&mut session, "pause_group('g')");
    count(&mut session, "retry_group('g')");
    assert!(owned(&mut session, 9, &["f"]).is_empty());
    count(&mut session, "resume_group('g')");
    assert_eq!(owned(&mut session, 9, &["f"]), ["failed"]);
}

#[test]
fn an_unknown_group_is_tq007_and_null_is_22004() {
    let db = Db::new();
    let mut session = group(&db);
    for verb in ["pause", "resume", "cancel", "delete", "retry", "reset"] {
        refused(&mut session, "TQ007", "absent", &format!("SELECT taskq.{verb}_group('absent')"), &[]);
        refused(&mut session, "22004", "group_id", &format!("SELECT taskq.{verb}_group(NULL)"), &[]);
    }
}
