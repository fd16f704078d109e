//! The worker makes room for sessions that want a database for themselves.

use std::time::{Duration, Instant};

use taskq_tests::until;

use super::cluster::{runs, settled_down, start, workers};

const EVERY_SECOND: &str =
    "SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"x\"}', overlap => 'queue')";

#[test]
fn databases_come_and_go() {
    let cluster = start("databases");
    let mut session = cluster.connect();
    // One without the extension gets no worker, and one as soon as it has it.
    session.run("CREATE DATABASE one");
    let mut inside = cluster.connect_to("one");
    inside.run("CREATE EXTENSION taskq");
    inside.run(EVERY_SECOND);
    runs(&mut inside, "tick", 2);
    drop(inside);

    // A copy, which the worker has to leave the original for. The copy has the schedule as well.
    let began = Instant::now();
    session.run("CREATE DATABASE two TEMPLATE one");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    session.run("ALTER DATABASE one RENAME TO uno");
    let mut inside = cluster.connect_to("two");
    inside.run("SELECT taskq.insert_task('wake', 'up')");
    runs(&mut inside, "tick", 6);
    assert_eq!(inside.broken(), [""; 0]);
    drop(inside);

    for drop_ in ["DROP DATABASE two", "DROP DATABASE uno WITH (FORCE)"] {
        let began = Instant::now();
        session.run(drop_);
        assert!(began.elapsed() < Duration::from_secs(10), "{drop_}: {:?}", began.elapsed());
    }
    until("no worker is left there", || (workers(&mut session, None).len() == 1).then_some(()));
}

#[test]
fn the_extension_comes_and_goes() {
    let cluster = start("extension");
    let mut session = cluster.connect();
    for _ in 0..5 {
        session.run(EVERY_SECOND);
        runs(&mut session, "tick", 1);
        let began = Instant::now();
        session.run("DROP EXTENSION taskq");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        session.run("CREATE EXTENSION taskq");
    }
    session.run("DROP EXTENSION taskq");
    until("the worker leaves", || workers(&mut session, None).is_empty().then_some(()));
    assert!(!cluster.log().contains("deadlock"), "the worker was in the way of no session");
}

#[test]
fn the_setting_switches_it_off_and_on() {
    let cluster = start("settings");
    let mut session = cluster.connect();
    settled_down(&mut session, "postgres");
    let off = |s: &mut taskq_tests::Session| until("it leaves", || workers(s, None).is_empty().then_some(()));
    for (switch_off, switch_on) in [
        ("ALTER SYSTEM SET taskq.background_worker = off", "ALTER SYSTEM RESET taskq.background_worker"),
        (
            "ALTER DATABASE postgres SET taskq.background_worker = off",
            "ALTER DATABASE postgres RESET taskq.background_worker",
        ),
    ] {
        session.run(switch_off);
        session.run("SELECT pg_reload_conf()");
        off(&mut session);
        session.run(switch_on);
        session.run("SELECT pg_reload_conf()");
        settled_down(&mut session, "postgres");
        // A worker that is just coming must not leave for good by what it has read before.
        for milliseconds in (0..20).step_by(2) {
            session.run(switch_off);
            session.run("SELECT pg_reload_conf()");
            std::thread::sleep(std::time::Duration::from_millis(milliseconds));
            session.run(switch_on);
            session.run("SELECT pg_reload_conf()");
            settled_down(&mut session, "postgres");
        }
    }
    // A role cannot empty a database of which it is not the owner.
    let before = workers(&mut session, Some("postgres"));
    session.run("CREATE ROLE stranger LOGIN");
    session.run("SET ROLE stranger");
    session.batch_execute("DROP DATABASE postgres").unwrap_err();
    session.batch_execute("ALTER DATABASE postgres RENAME TO mine").unwrap_err();
    session.run("RESET ROLE; SELECT pg_sleep(0.5)");
    assert_eq!(workers(&mut session, Some("postgres")), before);
}
