//! How much one call does of what time has made necessary, beside what it is for.
//!
//! On wrong code a call works off all that there is, in one transaction. With a time-out it is cut off then, nothing of
//! it stays, the next one begins anew, and no worker gets anything however often it calls.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Db, Grant, Session, until};

fn held(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.run WHERE NOT grantable")
}

#[test]
fn a_backlog_of_elapsed_leases_of_others_is_worked_off_in_small_parts() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT count(*) FROM taskq.insert_many('dead', array_fill('b'::text, ARRAY[7000]))");
    for _ in 0..7 {
        assert_eq!(session.own_with("w", 1000, &["dead"], "lease => '1 hour'").unwrap().len(), 1000);
    }
    session.insert((0..5).map(|n| json!({"id": format!("mine {n}"), "action": "mine"})).collect()).unwrap();
    session.set_now(Some("2100-01-01 00:00:00Z"));
    assert_eq!(session.own("w", 10, &["mine"]).unwrap().len(), 5);
    // The leases are of a thousand each, and a step is of two.
    let left = held(&mut session) - 5;
    assert!((5_000..7_000).contains(&left), "{left} of 7,000 are left by one call");
    // One that finds nothing does no more, and each goes on where the last one stopped.
    assert!(session.own("w", 10, &["nothing"]).unwrap().is_empty());
    let now = held(&mut session) - 5;
    assert!((left - 2_000..left).contains(&now), "{now} of {left} are left by the next call");
    // So does one that has waited and was granted nothing.
    assert!(session.own_with("w", 10, &["nothing"], "wait => '0.1 s'").unwrap().is_empty());
    let then = held(&mut session) - 5;
    assert!((now - 2_000..now).contains(&then), "{then} of {now} are left by one that has slept");
    // A worker that asks for the action itself is granted them at once.
    assert_eq!(session.own("w", 7000, &["dead"]).unwrap().len(), 7000);
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

/// Their deadlines have passed by the server's clock, which is the worker's.
fn elapse(session: &mut Session) {
    for table in ["run", "lease"] {
        session.run(&format!("UPDATE taskq.{table} SET deadline = deadline - interval '3 hours'"));
    }
}

/// What depends on a task that aborts ends with it, however much that is. On wrong code a call ends a number of tries, whatever that
/// takes: where its time-out is shorter it is cut off, and so is the next one, for ever.
#[test]
#[ignore = "long"]
fn callers_with_time_outs_get_on_however_long_the_end_of_the_dead_takes() {
    let (db, [mut session]) = Db::connected();
    last_tries(&mut session, "measured", 200, 300);
    elapse(&mut session);
    // How long it takes to end them all at once, on this machine.
    let since = Instant::now();
    session.run("SELECT taskq.maintain()");
    let whole = since.elapsed();
    last_tries(&mut session, "x", 200, 300);
    elapse(&mut session);
    session.run("SELECT taskq.insert_task('alive', 'x')");
    session.run(&format!("SET statement_timeout = {}", (whole.as_millis() * 6 / 10).max(10)));
    // A call may be cut off; the background worker is not.
    let (mut watcher, mut granted) = (db.connect(), Vec::new());
    until("what is ready is granted, and the tries that have elapsed are ended", || {
        granted.extend(session.own("w", 1, &["x"]).unwrap_or_default());
        (held(&mut watcher) == 1).then_some(())
    });
    session.run("SET statement_timeout = 0");
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].task_id, "alive");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'aborted'"), 2 * 200 * 301);
}

/// A call with a session of its own, which its client cancels after that time; what it was granted.
fn cut_off(db: &Db, watcher: &mut Session, after: Duration) -> Vec<Grant> {
    let call = db.connect().background(|session| session.own("w", 1, &["x"]).unwrap_or_default());
    std::thread::sleep(after);
    watcher.run(&format!("SELECT pg_cancel_backend({})", call.pid()));
    call.join().1
}

/// Why: a session remembers that it was cut off, and leaves what is due to the worker then. The next session began with the same.
#[test]
fn so_do_callers_with_a_session_for_each_call() {
    let (db, [mut session]) = Db::connected();
    last_tries(&mut session, "measured", 100, 100);
    elapse(&mut session);
    let since = Instant::now();
    session.run("SELECT taskq.maintain()");
    let whole = since.elapsed();
    last_tries(&mut session, "x", 100, 100);
    elapse(&mut session);
    session.run("SELECT taskq.insert_task('alive', 'x')");
    let mut granted = Vec::new();
    until("what is ready is granted, and the tries that have elapsed are ended", || {
        granted.extend(cut_off(&db, &mut session, (whole / 3).max(Duration::from_millis(300))));
        (held(&mut session) == 1).then_some(())
    });
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].task_id, "alive");
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// A call that waits undoes what has come to nothing, so as not to sleep on it. On wrong code it ends a part of what is before
/// its task, finds nothing, and begins anew, for as long as it waits.
#[test]
#[ignore = "long"]
fn one_that_waits_gets_through_to_what_is_behind_the_dead() {
    for (tries, dependents) in [(9_000, 0), (300, 300)] {
        let (_db, [mut session]) = Db::connected();
        last_tries(&mut session, "x", tries, dependents);
        session.run("SELECT taskq.insert_task('again', 'x')");
        session.own_with("dead", 1, &["x"], "lease => '2 hours'").unwrap();
        elapse(&mut session);
        let granted = session.own_with("w", 1, &["x"], "wait => '60 s'").unwrap();
        assert_eq!(granted.len(), 1, "behind {tries} with {dependents} dependents each");
        assert_eq!(granted[0].task_id, "again");
    }
}

/// Tasks that are due and may not run: they have to be moved before that is known of each.
#[test]
fn a_backlog_of_due_tasks_that_may_not_run_is_worked_off_in_small_parts() {
    let (_db, [mut session]) = Db::connected();
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
    assert!((3_000..4_000).contains(&left), "{left} of 4,000 are left by one call");
    for calls in 1.. {
        let granted = session.own("w", 10, &["x", "mine"]).unwrap();
        let now = scheduled(&mut session);
        assert!((left - 1_000..left).contains(&now), "{now} of {left} are left by one call");
        left = now;
        if let [grant] = granted.as_slice() {
            assert_eq!(grant.task_id, "behind");
            break;
        }
        assert!(calls < 40, "what is behind them is not granted");
    }
}
