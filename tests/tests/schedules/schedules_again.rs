//! Schedules that are set anew while runs of theirs are due and not yet inserted.
//!
//! Why: each deploy registers its schedules, most of them as they were. On wrong code what was due before that never
//! runs: a nightly run is lost without a trace at a deploy before a worker has looked, or while the schedule is paused.

use serde_json::json;
use taskq_tests::{Db, Progress, Session, sqlstate};

use crate::schedules::{hourly, look_at, runs};
use crate::{call, owned};

const X: &str = r#"{"action": "x"}"#;

fn set(session: &mut Session, cron: &str, rest: &str) {
    call(session, &format!("schedule('s', '{cron}', {rest})"));
}

fn next(session: &mut Session) -> String {
    session.one("SELECT to_char(next_at AT TIME ZONE 'UTC', 'HH24:MI') FROM taskq.schedules")
}

#[test]
fn the_same_call_again_loses_nothing() {
    for (policy, expected) in [
        ("backfill => 'one'", vec!["05:00"]),
        ("backfill => 'none'", vec![]),
        ("backfill => 'all'", vec!["01:00", "02:00", "03:00", "04:00", "05:00"]),
        ("backfill => 'all', max_backfill => 2", vec!["04:00", "05:00"]),
    ] {
        for paused in [false, true] {
            let db = Db::new();
            let mut session = hourly(&db, &format!("overlap => 'queue', {policy}"));
            if paused {
                call(&mut session, "pause_schedule('s')");
            }
            session.set_now(Some("2030-01-01 05:20:00Z"));
            for cron in ["0 * * * *", " 0   * * * * ", "@hourly", "0 0 * * * *", "00 */1 * * ?"] {
                set(&mut session, cron, &format!("'{X}', timezone => 'utc', overlap => 'queue', {policy}"));
            }
            if paused {
                call(&mut session, "maintain()");
                assert!(runs(&mut session).is_empty(), "{policy}: it is paused");
                call(&mut session, "resume_schedule('s')");
            }
            call(&mut session, "maintain()");
            assert_eq!(runs(&mut session), expected, "{policy}, paused: {paused}");
            assert_eq!(next(&mut session), "06:00");
            look_at(&mut session, "06:00:01");
            assert_eq!(runs(&mut session).last().map(String::as_str), Some("06:00"));
        }
    }
}

/// What was missed follows what is said now.
#[test]
fn the_rest_is_changed_for_what_is_due_as_well() {
    for paused in [false, true] {
        let db = Db::new();
        let mut session = hourly(&db, "overlap => 'skip', backfill => 'one'");
        if paused {
            call(&mut session, "pause_schedule('s')");
        }
        session.set_now(Some("2030-01-01 03:20:00Z"));
        set(&mut session, "0 * * * *", r#"'{"action": "y"}', overlap => 'queue', backfill => 'all'"#);
        if paused {
            call(&mut session, "resume_schedule('s')");
        }
        for hour in ["01", "02", "03"] {
            assert_eq!(session.perform("y", "completed"), format!("s@2030-01-01T{hour}:00:00Z"));
        }
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks"), 3);
    }
}

#[test]
fn a_waiting_call_is_woken_for_what_is_still_due() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'queue'");
    let mut sleeper = db.connect();
    sleeper.set_now(Some("2030-01-01 00:40:00Z"));
    let asleep = sleeper.background(|s| s.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap());
    session.until_asleep(asleep.pid());
    // The clock of the waiting call stands still: it looks because it is woken, and another one inserts the run.
    session.set_now(Some("2030-01-01 01:20:00Z"));
    set(&mut session, "0 * * * *", &format!("'{X}', overlap => 'queue'"));
    call(&mut session, "maintain()");
    assert_eq!(asleep.join().1.len(), 1);
}

#[test]
fn before_other_times_hold_what_is_due_by_the_old_ones_is_inserted_by_the_old_policies() {
    for (policy, expected) in [
        ("backfill => 'one'", vec!["03:00"]),
        ("backfill => 'none'", vec![]),
        ("backfill => 'all'", vec!["01:00", "02:00", "03:00"]),
        ("backfill => 'all', max_backfill => 2", vec!["02:00", "03:00"]),
    ] {
        for (cron, zone) in [("30 * * * *", "UTC"), ("0 * * * *", "Asia/Kolkata")] {
            let db = Db::new();
            let mut session = hourly(&db, &format!("overlap => 'queue', {policy}"));
            session.set_now(Some("2030-01-01 03:20:00Z"));
            let rest = format!(r#"'{{"action": "y"}}', '{zone}', overlap => 'skip', backfill => 'one'"#);
            set(&mut session, cron, &rest);
            assert_eq!(runs(&mut session), expected, "{policy}: in the very call");
            assert_eq!(next(&mut session), "03:30");
            let of_x: i64 = session.one("SELECT count(*) FROM taskq.tasks WHERE action = 'x'");
            assert_eq!(of_x as usize, expected.len(), "with the old task");
            for _ in &expected {
                session.perform("x", "completed");
            }
            look_at(&mut session, "03:30:01");
            assert_eq!(runs(&mut session).last().map(String::as_str), Some("03:30"));
            assert_eq!(session.perform("y", "completed"), "s@2030-01-01T03:30:00Z");
        }
    }
}

/// While it is paused nothing is inserted; what it has missed by then is asked of the times that it has at its resume.
#[test]
fn a_paused_one_makes_up_by_its_new_times_for_what_it_has_missed() {
    for (at, policy, expected) in [
        ("02:20:00", "one", vec!["01:30 y", "02:30 y"]),
        ("02:20:00", "all", vec!["01:30 y", "02:30 y"]),
        ("03:10:00", "all", vec!["01:30 y", "02:30 y", "03:30 y"]),
        ("03:10:00", "one", vec!["02:30 y", "03:30 y"]),
        // It had missed nothing.
        ("00:50:00", "all", vec!["01:30 y"]),
    ] {
        let db = Db::new();
        let mut session = hourly(&db, "overlap => 'queue', backfill => 'all'");
        call(&mut session, "pause_schedule('s')");
        session.set_now(Some(&format!("2030-01-01 {at}Z")));
        let rest = format!(r#"'{{"action": "y"}}', overlap => 'queue', backfill => '{policy}'"#);
        set(&mut session, "30 * * * *", &rest);
        call(&mut session, "maintain()");
        assert!(runs(&mut session).is_empty(), "{at} {policy}");
        call(&mut session, "resume_schedule('s')");
        call(&mut session, "maintain()");
        let last = expected.last().unwrap()[..5].to_owned();
        look_at(&mut session, &format!("{last}:01"));
        let all: Vec<String> =
            session.all("SELECT substr(id, 14, 5) || ' ' || action FROM taskq.tasks ORDER BY id");
        assert_eq!(all, expected, "{at} {policy}");
    }
}

/// What is due by the old times comes before the call sets the new ones: where another transaction holds what a run needs, the call waits
/// for that one as an insertion does. On wrong code that run is lost.
#[test]
fn a_run_that_is_held_up_comes_before_what_is_due_by_the_new_times() {
    for (overlap, expected) in [
        ("queue", vec!["01:00 x", "02:00 x", "03:00 x", "03:30 y", "04:30 y"]),
        ("replace", vec!["01:00 x", "02:00 x", "03:00 x", "03:30 y", "04:30 y"]),
    ] {
        let db = Db::new();
        let mut session = hourly(&db, &format!("overlap => '{overlap}', backfill => 'all'"));
        look_at(&mut session, "01:00:01");
        let grant = session.own_one("x");
        let mut other = db.connect();
        other.set_now(Some("2030-01-01 01:10:00Z"));
        other.run("BEGIN");
        other.complete(&grant);
        session.set_now(Some("2030-01-01 03:20:00Z"));
        let rest = format!(r#"'{{"action": "y"}}', overlap => '{overlap}', backfill => 'all'"#);
        let setting = session.background(move |s| set(s, "30 * * * *", &rest));
        let mut watcher = db.connect();
        assert_eq!(setting.settle_down(&mut watcher), Progress::Blocked, "{overlap}");
        assert_eq!((runs(&mut watcher).len(), next(&mut watcher)), (1, "02:00".to_owned()), "{overlap}");
        other.run("COMMIT");
        let (mut session, ()) = setting.join();
        assert_eq!((runs(&mut session).len(), next(&mut session)), (3, "03:30".to_owned()), "{overlap}");
        session.set_now(Some("2030-01-01 04:40:00Z"));
        for _ in 0..3 {
            call(&mut session, "maintain()");
        }
        let all: Vec<String> =
            session.all("SELECT substr(id, 14, 5) || ' ' || action FROM taskq.tasks ORDER BY id");
        assert_eq!(all, expected, "{overlap}");
        assert_eq!(next(&mut session), "05:30", "{overlap}");
    }
}

/// A call that gives up waiting has changed nothing.
#[test]
fn a_call_that_gives_up_waiting_for_a_run_leaves_the_schedule_as_it_was() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'queue', backfill => 'all'");
    look_at(&mut session, "01:00:01");
    let grant = session.own_one("x");
    let mut other = db.connect();
    other.set_now(Some("2030-01-01 01:10:00Z"));
    other.run("BEGIN");
    other.complete(&grant);
    session.set_now(Some("2030-01-01 03:20:00Z"));
    session.run("SET lock_timeout = '100ms'");
    let error = session.query(&format!("SELECT taskq.schedule('s', '30 * * * *', '{X}')"), &[]).unwrap_err();
    assert_eq!(sqlstate(&error), "55P03");
    session.run("RESET lock_timeout");
    assert_eq!((runs(&mut session).len(), next(&mut session)), (1, "02:00".to_owned()));
    other.run("COMMIT");
    call(&mut session, "maintain()");
    assert_eq!(runs(&mut session), ["01:00", "02:00", "03:00"]);
}

/// A run that cannot be inserted is told as ever, and keeps neither the rest nor the new times from coming.
#[test]
fn a_run_that_cannot_be_inserted_does_not_stop_what_follows() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'queue', backfill => 'all'");
    session.insert(json!([{"id": "gone", "action": "z"}])).unwrap();
    session.own_one("z");
    set(&mut session, "0 * * * *", r#"'{"action": "x", "to_signal_after": ["gone"]}', backfill => 'all'"#);
    session.set_now(Some("2030-01-01 02:20:00Z"));
    set(&mut session, "30 * * * *", r#"'{"action": "y"}'"#);
    assert!(runs(&mut session).is_empty());
    assert!(session.one::<String>("SELECT problem FROM taskq.schedules").contains("gone"));
    look_at(&mut session, "02:30:01");
    assert_eq!(owned(&mut session, 9, &["y"]), ["s@2030-01-01T02:30:00Z"]);
}

#[test]
fn a_clock_that_was_put_back_is_mended_by_setting_it_again() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2031-01-01 00:30:00Z"));
    set(&mut session, "0 * * * *", &format!("'{X}'"));
    session.set_now(Some("2030-01-01 00:30:00Z"));
    set(&mut session, "0 * * * *", &format!("'{X}'"));
    look_at(&mut session, "01:00:01");
    assert_eq!(runs(&mut session), ["01:00"]);
}

#[test]
fn the_name_of_the_zone_is_kept_as_it_is_spelt() {
    let (_db, [mut session]) = Db::connected();
    set(&mut session, "0 9 * * *", &format!("'{X}', timezone => 'europe/BERLIN'"));
    assert_eq!(session.one::<String>("SELECT timezone FROM taskq.schedules"), "Europe/Berlin");
}
