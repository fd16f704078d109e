//! What ends a sleep besides a wake-up, and that it ends at once.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use taskq_tests::{Cluster, Db, Session, until};

use crate::sleeper::{END, PROMPT, Sleeper, WORK, Way};

fn all_ways() -> impl Iterator<Item = Way> {
    WORK.into_iter().chain(END)
}

#[test]
fn cancel_and_terminate_end_every_sleep_at_once_and_leave_no_lock() {
    let (db, [mut watcher]) = Db::connected();
    watcher.run("SELECT taskq.insert_task('a', 'y')");
    for way in all_ways() {
        for (end, expected) in [("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")] {
            let sleeper = Sleeper::start(&db, &mut watcher, way);
            let pid = sleeper.pid();
            watcher.run(&format!("SELECT {end}({pid})"));
            let (_session, code, slept) = sleeper.fails();
            // A connection that is closed may be gone before its last words are read.
            let told = code.is_none() && end == "pg_terminate_backend" || code.as_deref() == Some(expected);
            assert!(told, "{} {end}: {code:?}", way.name);
            assert!(slept < PROMPT, "{} slept on for {slept:?} after {end}", way.name);
            until("its locks are gone", || {
                (watcher.one::<i64>(&format!("SELECT count(*) FROM pg_locks WHERE pid = {pid}")) == 0)
                    .then_some(())
            });
        }
    }
}

#[test]
fn statement_timeout_ends_every_sleep() {
    let (db, [mut watcher]) = Db::connected();
    watcher.run("SELECT taskq.insert_task('a', 'y')");
    for way in all_ways() {
        let mut session = db.connect();
        session.run("SET statement_timeout = '1500ms'");
        let (mut session, code, slept) = Sleeper::start_in(session, &mut watcher, way).fails();
        assert_eq!(code.as_deref(), Some("57014"), "{}", way.name);
        assert!(slept < PROMPT, "{} slept for {slept:?}", way.name);
        let pid = session.pid();
        assert_eq!(
            session.one::<i64>(&format!(
                "SELECT count(*) FROM pg_locks WHERE pid = {pid} AND locktype = 'advisory'"
            )),
            0
        );
    }
}

#[test]
fn a_client_that_vanished_gets_no_task() {
    let (db, [mut session, mut watcher]) = Db::connected();
    for way in WORK {
        let (mut client, pid) = psql(&db, &mut watcher, way, "");
        client.kill().unwrap();
        client.wait().unwrap();
        session.run("SELECT taskq.insert_task(NULL, 'x')");
        until_gone(&mut watcher, pid);
        assert_eq!(session.own_one("x").num_tries, 1, "{}: no worker had it before", way.name);
    }
}

/// Without that setting a sleeper looks for its client only when it is woken.
#[test]
fn client_connection_check_interval_ends_the_sleep_of_a_client_that_vanished() {
    let (db, [mut watcher]) = Db::connected();
    watcher.run("SELECT taskq.insert_task('a', 'y')");
    for way in all_ways() {
        let (mut client, pid) = psql(&db, &mut watcher, way, "-c client_connection_check_interval=200ms");
        client.kill().unwrap();
        client.wait().unwrap();
        let start = Instant::now();
        until_gone(&mut watcher, pid);
        assert!(start.elapsed() < PROMPT, "{}: {:?}", way.name, start.elapsed());
    }
}

/// A client of its own that can be killed, asleep in the call; and its backend.
fn psql(db: &Db, watcher: &mut Session, way: Way, options: &str) -> (Child, i32) {
    let client = Command::new("psql")
        .args(["-X", "-q", "-d", db.name(), "-c", way.call])
        .env("PGOPTIONS", options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("psql is installed");
    let pid = until("psql's call is under way", || {
        let rows = watcher.all::<i32>(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'psql' AND datname = current_database() AND state = 'active'",
        );
        rows.first().copied()
    });
    watcher.until_asleep(pid);
    (client, pid)
}

fn until_gone(watcher: &mut Session, pid: i32) {
    until("the backend is gone", || {
        (watcher.one::<i64>(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")) == 0)
            .then_some(())
    });
}

#[test]
fn a_fast_shutdown_does_not_wait_for_sleepers() {
    let cluster = Cluster::start(env!("CARGO_TARGET_TMPDIR"), "waiting-shutdown", &[]);
    let mut watcher = cluster.connect();
    watcher.run("SELECT taskq.insert_task('a', 'y')");
    let sleepers: Vec<_> =
        all_ways().map(|way| Sleeper::start_in(cluster.connect(), &mut watcher, way)).collect();
    let start = Instant::now();
    cluster.stop();
    assert!(start.elapsed() < Duration::from_secs(5), "the shutdown took {:?}", start.elapsed());
    for sleeper in sleepers {
        let (_session, code, _) = sleeper.fails();
        assert!(code.is_none_or(|code| code == "57P01"));
    }
}
