//! A sleeping call holds no lock on a table: a session that wants one for itself gets it, and the queue goes on.
//!
//! Why: a sleep may take hours. VACUUM FULL or an upgrade would wait for the longest one, and all other sessions for
//! them: the queue would stand still.

use std::time::{Duration, Instant};

use taskq_tests::Db;

use crate::sleeper::{END, Sleeper, WORK};

#[test]
fn vacuum_full_does_not_wait_for_sleepers_and_they_sleep_on() {
    let (db, [mut session, mut watcher]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'y')");
    let sleepers: Vec<Sleeper> =
        WORK.into_iter().chain(END).map(|way| Sleeper::start(&db, &mut watcher, way)).collect();
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND pid <> pg_backend_pid() \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(session.one::<i64>(held), 0, "sleepers hold tables");
    session.run("SET lock_timeout = '2s'");
    let start = Instant::now();
    let tables: Vec<String> =
        session.all("SELECT 'taskq.' || tablename FROM pg_tables WHERE schemaname = 'taskq' ORDER BY 1");
    assert!(tables.len() > 20);
    for table in tables {
        session.run(&format!("VACUUM FULL {table}"));
    }
    session.run("REINDEX SCHEMA taskq");
    assert!(start.elapsed() < Duration::from_secs(20));
    // Two of them wait for work, and each needs some.
    let inserted = Instant::now();
    session.run("SELECT taskq.insert_tasks('[{\"action\": \"x\"}, {\"action\": \"x\"}]')");
    session.run("SELECT taskq.complete_task('a')");
    for sleeper in sleepers {
        drop(sleeper.woken_soon_after(inserted, "what it waits for, after all tables were rewritten"));
    }
}

/// A look has to wait for such a command, and finds what has come meanwhile.
#[test]
fn a_look_that_meets_a_rewrite_waits_for_it_and_goes_on() {
    let (db, [mut session, mut watcher, mut locker]) = Db::connected();
    for way in WORK {
        db.clear();
        session.run("SELECT taskq.insert_task('a', 'x', delay => '1 second')");
        let sleeper = Sleeper::start(&db, &mut watcher, way);
        // Due in a second: then it looks, and waits.
        locker.run("BEGIN; LOCK TABLE taskq.run IN ACCESS EXCLUSIVE MODE");
        std::thread::sleep(Duration::from_millis(1500));
        locker.run("COMMIT");
        drop(sleeper.woken_by("the end of the rewrite"));
    }
}

/// No call is in the way of DROP EXTENSION either; a sleeper then ends with an error.
#[test]
fn drop_extension_does_not_wait_for_sleepers() {
    let (db, [mut session, mut watcher]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'y')");
    let ways = WORK.into_iter().chain(END);
    let sleepers: Vec<Sleeper> = ways
        .map(|way| {
            let mut caller = db.connect();
            caller.run("SET taskq.shortest_sleep = '1s'");
            Sleeper::start_in(caller, &mut watcher, way)
        })
        .collect();
    session.run("SET lock_timeout = '2s'; DROP EXTENSION taskq CASCADE");
    for sleeper in sleepers {
        let (_session, code, _) = sleeper.fails();
        let class = code.as_deref().map(|code| &code[..2]);
        assert!(
            [Some("42"), Some("3F")].contains(&class),
            "an undefined schema, table or function: {code:?}"
        );
    }
}
