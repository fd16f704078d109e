//! How much one call does of what time has made necessary, beside what it is for.
//!
//! On wrong code a call works off all that there is, in one transaction. With a time-out it is cut off then, nothing of
//! it stays, the next one begins anew, and no worker gets anything however often it calls.

use std::time::Instant;

use serde_json::json;
use taskq_tests::{Db, Session};

fn held(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.run WHERE NOT grantable")
}

#[test]
fn a_backlog_of_elapsed_leases_of_others_is_worked_off_in_small_parts() {
    let db = Db::new();
    let mut session = db.connect();
    session.run("SELECT count(*) FROM taskq.insert_many('dead', array_fill('b'::text, ARRAY[3000]))");
    for _ in 0..3 {
        assert_eq!(session.own_with("w", 1000, &["dead"], "lease => '1 hour'").unwrap().len(), 1000);
    }
    session.insert((0..5).map(|n| json!({"id": format!("mine {n}"), "action": "mine"})).collect()).unwrap();
    session.set_now(Some("2100-01-01 00:00:00Z"));
    assert_eq!(session.own("w", 10, &["mine"]).unwrap().len(), 5);
    let left = held(&mut session) - 5;
    assert!((2_500..3_000).contains(&left), "{left} of 3,000 are left by one call");
    // One that finds nothing does no more, and each goes on where the last one stopped.
    assert!(session.own("w", 10, &["nothing"]).unwrap().is_empty());
    let now = held(&mut session) - 5;
    assert!((left - 500..left).contains(&now), "{now} of {left} are left by the next call");
    // So does one that has waited and was granted nothing.
    assert!(session.own_with("w", 10, &["nothing"], "wait => '0.1 s'").unwrap().is_empty());
    let then = held(&mut session) - 5;
    assert!((now - 500..now).contains(&then), "{then} of {now} are left by one that has slept");
    // A worker that asks for the action itself is granted them at once.
    assert_eq!(session.own("w", 3000, &["dead"]).unwrap().len(), 3000);
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// Tries that have elapsed, each the last of its task; so many other tasks abort with each.
fn last_tries(session: &mut Session, action: &str, tries: usize, dependents: usize) {
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_many('{action}', array_fill('b'::text, ARRAY[{tries}]),
                    ids => ARRAY(SELECT '{action}' || n FROM generate_series(1, {tries}) AS n), max_tries => 1)"
    ));
    session.run(&format!(
        "SELECT count(*) FROM generate_series(1, {tries}) AS n,
                LATERAL taskq.insert_many('behind', array_fill('b'::text, ARRAY[{dependents}]), depends_on => ARRAY['{action}' || n])"
    ));
    let mut held = 0;
    while held < tries {
        held += session.own_with("dead", 1000, &[action], "lease => '1 hour'").unwrap().len();
    }
}

/// What depends on a task that aborts ends with it, however much that is. On wrong code a call ends a number of tries, whatever that
/// takes: where its time-out is shorter it is cut off, and so is the next one, for ever.
#[test]
#[ignore = "long"]
fn callers_with_time_outs_get_on_however_long_the_end_of_the_dead_takes() {
    let db = Db::new();
    let mut session = db.connect();
    last_tries(&mut session, "measured", 200, 300);
    session.set_now(Some("2100-01-01 00:00:00Z"));
    // How long it takes to end them all at once, on this machine.
    let since = Instant::now();
    assert!(session.own("w", 1, &["measured"]).unwrap().is_empty());
    let whole = since.elapsed();
    last_tries(&mut session, "x", 200, 300);
    session.run("SELECT taskq.insert_task('alive', 'x')");
    session.set_now(Some("2100-01-01 02:00:00Z"));
    session.run(&format!("SET statement_timeout = {}", (whole.as_millis() * 6 / 10).max(10)));
    let (mut granted, mut cut_off) = (0, 0);
    for _ in 0..200 {
        match session.own("w", 1, &["x"]) {
            Ok(grants) => granted += grants.len(),
            Err(_) => cut_off += 1,
        }
    }
    session.run("SET statement_timeout = 0");
    assert_eq!(granted, 1, "what is ready; {cut_off} calls of 200 were cut off, after {whole:?} for all");
    assert_eq!(
        held(&mut session),
        1,
        "tries that have elapsed and were not ended; {cut_off} calls of 200 were cut off"
    );
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'aborted'"), 2 * 200 * 301);
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// A call that waits undoes what has come to nothing, so as not to sleep on it. On wrong code it ends a part of what is before
/// its task, finds nothing, and begins anew, for as long as it waits.
#[test]
#[ignore = "long"]
fn one_that_waits_gets_through_to_what_is_behind_the_dead() {
    for (tries, dependents) in [(9_000, 0), (300, 300)] {
        let db = Db::new();
        let mut session = db.connect();
        last_tries(&mut session, "x", tries, dependents);
        session.run("SELECT taskq.insert_task('again', 'x')");
        session.own_with("dead", 1, &["x"], "lease => '2 hours'").unwrap();
        session.set_now(Some("2100-01-01 00:00:00Z"));
        let granted = session.own_with("w", 1, &["x"], "wait => '10 s'").unwrap();
        assert_eq!(granted.len(), 1, "behind {tries} with {dependents} dependents each");
        assert_eq!(granted[0].task_id, "again");
    }
}

/// Tasks that are due and may not run: they have to be moved before that is known of each.
#[test]
fn a_backlog_of_due_tasks_that_may_not_run_is_worked_off_in_small_parts() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[4000]), delay => '1 hour', group_id => 'paused')",
    );
    session.run("SELECT taskq.pause_group('paused')");
    session.insert(json!([{"id": "behind", "action": "x", "delay": "2 hours", "group_id": "open"}])).unwrap();
    session.insert((0..5).map(|n| json!({"id": format!("mine {n}"), "action": "mine"})).collect()).unwrap();
    session.set_now(Some("2100-01-01 00:00:00Z"));
    assert_eq!(session.own("w", 10, &["x", "mine"]).unwrap().len(), 5);
    let scheduled = |session: &mut Session| session.one::<i64>("SELECT count(*) FROM taskq.scheduled");
    let mut left = scheduled(&mut session);
    assert!((2_000..4_000).contains(&left), "{left} of 4,000 are left by one call");
    for calls in 1.. {
        let granted = session.own("w", 10, &["x", "mine"]).unwrap();
        let now = scheduled(&mut session);
        assert!(left - now <= 2_000, "{now} of {left} are left by one call");
        left = now;
        if let [grant] = granted.as_slice() {
            assert_eq!(grant.task_id, "behind");
            break;
        }
        assert!(calls < 10, "what is behind them is not granted");
    }
    assert_eq!(session.broken(), Vec::<String>::new());
}
