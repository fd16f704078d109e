//! Schedules that are paused, resumed, and run by hand.
//!
//! Why: the first thing that an operator wants of a schedule that does harm is that it stops, without its being written
//! down and removed. On wrong code a paused one runs, missed runs come in another number than the policy says, or a run by
//! hand is left out because one is under way.

use serde_json::json;
use taskq_tests::{Db, Progress, refused, sqlstate};

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

/// A session is about to resume it: a pause that said "it is paused" beside that would be lost without a word.
#[test]
fn a_pause_beside_an_open_resume_waits_and_holds() {
    let db = Db::new();
    for (end, changed) in [("ROLLBACK", false), ("COMMIT", true)] {
        let (mut resumes, pauses) = (hourly(&db, "overlap => 'queue'"), db.connect());
        call(&mut resumes, "pause_schedule('s')");
        resumes.run("BEGIN");
        call(&mut resumes, "resume_schedule('s')");
        let pausing = pauses.background(|s| s.one::<bool>("SELECT taskq.pause_schedule('s')"));
        assert_eq!(pausing.settle_down(&mut db.connect()), Progress::Blocked);
        resumes.run(end);
        assert_eq!(pausing.join().1, changed, "{end}");
        look_at(&mut resumes, "03:00:00");
        assert!(runs(&mut resumes).is_empty(), "{end}");
        resumes.run("SELECT taskq.unschedule('s')");
    }
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
    let db = Db::new();
    let mut session = db.connect();
    call(&mut session, r#"schedule('s', '0 * * * *', '{"action": "x", "to_signal_after": ["gone"]}')"#);
    session.insert(json!([{"id": "gone", "action": "y"}])).unwrap();
    session.own_one("y");
    refused(&mut session, "TQ005", "gone", "SELECT taskq.run_schedule('s')", &[]);
}

/// A call that sleeps until the next run has to learn that one is due now.
#[test]
fn a_resume_and_a_run_by_hand_wake_a_waiting_call() {
    let db = Db::new();
    let mut session = db.connect();
    call(&mut session, r#"schedule('s', '* * * * * *', '{"action": "x"}')"#);
    call(&mut session, "pause_schedule('s')");
    session.insert(json!([{"id": "first", "action": "x"}])).unwrap();
    let mut sleeper = db.connect();
    sleeper.perform("x", "completed");
    let asleep = sleeper.background(|s| s.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap());
    session.until_asleep(asleep.pid());
    call(&mut session, "run_schedule('s')");
    let (sleeper, grants) = asleep.join();
    assert_eq!(grants.len(), 1);
    let asleep = sleeper.background(|s| crate::wait_for_one(s, "x").is_some());
    session.until_asleep(asleep.pid());
    session.complete(&grants[0]);
    call(&mut session, "resume_schedule('s')");
    assert!(asleep.join().1);
}

#[test]
fn a_pause_waits_for_a_run_that_is_being_inserted() {
    let db = Db::new();
    let (mut open, other) = (hourly(&db, "overlap => 'skip'"), db.connect());
    open.run("BEGIN");
    call(&mut open, "run_schedule('s')");
    let mut watcher = db.connect();
    let pause = other.background(|s| s.one::<bool>("SELECT taskq.pause_schedule('s')"));
    assert_eq!(pause.settle_down(&mut watcher), Progress::Blocked);
    open.run("COMMIT");
    assert!(pause.join().1);
}

/// "It was so already" would be a lie: there is none any more.
#[test]
fn one_that_is_dropped_while_the_call_waits_is_refused() {
    for verb in ["pause_schedule", "resume_schedule", "run_schedule"] {
        let db = Db::new();
        let mut session = hourly(&db, "overlap => 'skip'");
        if verb == "resume_schedule" {
            call(&mut session, "pause_schedule('s')");
        }
        session.run("BEGIN; SELECT taskq.unschedule('s')");
        let waiting = db.connect().background(move |s| s.batch_execute(&format!("SELECT taskq.{verb}('s')")));
        assert_eq!(waiting.settle_down(&mut db.connect()), Progress::Blocked);
        session.run("COMMIT");
        assert_eq!(sqlstate(&waiting.join().1.unwrap_err()), "TQ007");
    }
}

/// The new one is not paused: "it was so already" would be a lie, too.
#[test]
fn one_that_is_dropped_and_set_anew_while_the_call_waits_is_paused() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'skip'");
    session.run("BEGIN; SELECT taskq.unschedule('s')");
    call(&mut session, "schedule('s', '0 * * * *', '{\"action\": \"x\"}')");
    let waiting = db.connect().background(|s| s.one::<bool>("SELECT taskq.pause_schedule('s')"));
    assert_eq!(waiting.settle_down(&mut db.connect()), Progress::Blocked);
    session.run("COMMIT");
    assert!(waiting.join().1);
    assert!(session.one::<bool>("SELECT paused FROM taskq.schedules"));
}
