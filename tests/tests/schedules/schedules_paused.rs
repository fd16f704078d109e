//! Schedules that are paused, resumed, and run by hand.
//!
//! Why: the first thing that an operator wants of a schedule that does harm is that it stops, without its being written
//! down and removed. On wrong code a paused one runs, missed runs come in another number than the policy says, or a run by
//! hand is left out because one is under way.

use serde_json::json;
use taskq_tests::{Db, refused};

use crate::schedules::{hourly, look_at, runs};
use crate::{call, owned};

#[test]
fn a_paused_one_does_not_run_and_tells_so() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'queue'");
    assert!(session.one::<bool>("SELECT taskq.pause_schedule('s')"));
    assert!(!session.one::<bool>("SELECT taskq.pause_schedule('s')"), "it was paused already");
    look_at(&mut session, "03:00:00");
    assert!(runs(&mut session).is_empty());
    let shown: String =
        session.one("SELECT paused || ' ' || COALESCE(next_at::text, 'none') FROM taskq.schedules");
    assert_eq!(shown, "true none");
    assert!(session.one::<bool>("SELECT taskq.resume_schedule('s')"));
    assert!(!session.one::<bool>("SELECT taskq.resume_schedule('s')"));
    look_at(&mut session, "04:00:00");
    assert_eq!(runs(&mut session).last().map(String::as_str), Some("04:00"));
}

#[test]
fn what_was_missed_follows_the_policy() {
    for (policy, expected) in [
        ("backfill => 'one'", vec!["03:00"]),
        ("backfill => 'none'", vec![]),
        ("backfill => 'all'", vec!["01:00", "02:00", "03:00"]),
        ("backfill => 'all', max_backfill => 2", vec!["02:00", "03:00"]),
    ] {
        let db = Db::new();
        let mut session = hourly(&db, &format!("overlap => 'queue', {policy}"));
        call(&mut session, "pause_schedule('s')");
        look_at(&mut session, "03:30:00");
        call(&mut session, "resume_schedule('s')");
        call(&mut session, "maintain()");
        assert_eq!(runs(&mut session), expected, "{policy}");
        look_at(&mut session, "04:00:00");
        assert_eq!(runs(&mut session).last().map(String::as_str), Some("04:00"), "{policy}");
    }
}

#[test]
fn one_that_is_set_anew_stays_paused() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'queue'");
    call(&mut session, "pause_schedule('s')");
    let next: Option<String> = session
        .query_one("SELECT taskq.schedule('s', '30 * * * *', '{\"action\": \"y\"}')::text", &[])
        .unwrap()
        .get(0);
    assert_eq!(next, None);
    look_at(&mut session, "02:00:00");
    assert!(runs(&mut session).is_empty());
    call(&mut session, "resume_schedule('s')");
    call(&mut session, "maintain()");
    assert_eq!(runs(&mut session), ["01:30"]);
}

#[test]
fn a_run_by_hand_comes_at_once_whatever_else() {
    for overlap in ["skip", "queue", "replace"] {
        let db = Db::new();
        let mut session = hourly(&db, &format!("overlap => '{overlap}'"));
        look_at(&mut session, "01:00:00");
        assert_eq!(owned(&mut session, 1, &["x"]), ["s@2030-01-01T01:00:00Z"]);
        call(&mut session, "pause_schedule('s')");
        let first: String = session.one("SELECT taskq.run_schedule('s')");
        let second: String = session.one("SELECT taskq.run_schedule('s')");
        assert_ne!(first, second);
        assert!(first.starts_with("s@2030-01-01T01:00:00.000"), "{first}");
        assert_eq!(session.state("s@2030-01-01T01:00:00Z"), "in-progress", "with {overlap}");
        assert_eq!(owned(&mut session, 5, &["x"]), [first, second.clone()], "with {overlap}");
        assert_eq!(session.one::<String>("SELECT last_task_id FROM taskq.schedules"), second);
    }
}

#[test]
fn the_next_run_counts_one_by_hand_as_the_run_before() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'skip'");
    call(&mut session, "run_schedule('s')");
    look_at(&mut session, "01:00:00");
    assert_eq!(runs(&mut session), ["00:30"]);
    assert_eq!(owned(&mut session, 5, &["x"]).len(), 1);
    session.cancel(&["s@2030-01-01T00:30:00.000000Z"]).unwrap();
    look_at(&mut session, "02:00:00");
    assert_eq!(runs(&mut session), ["00:30", "02:00"]);
}

#[test]
fn names_that_there_are_not() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'skip'");
    for call in ["pause_schedule", "resume_schedule", "run_schedule"] {
        refused(&mut session, "TQ007", "nope", &format!("SELECT taskq.{call}('nope')"), &[]);
        refused(&mut session, "22004", "name", &format!("SELECT taskq.{call}(NULL)"), &[]);
    }
}

#[test]
fn a_run_that_cannot_be_inserted_is_an_error() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, r#"schedule('s', '0 * * * *', '{"action": "x", "to_signal_after": ["gone"]}')"#);
    session.insert(json!([{"id": "gone", "action": "y"}])).unwrap();
    session.own_one("y");
    refused(&mut session, "TQ005", "gone", "SELECT taskq.run_schedule('s')", &[]);
}
