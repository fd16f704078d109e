//! One worker per database, whatever becomes of the launcher, of the extension and of what is set for a database.

use std::thread;
use std::time::{Duration, Instant};

use taskq_tests::{Session, until};

use super::cluster::{runs, settled_down, start, workers};

fn launcher(session: &mut Session) -> Option<i32> {
    session.all::<i32>("SELECT pid FROM pg_stat_activity WHERE backend_type = 'taskq launcher'").pop()
}

/// A launcher that only knows of workers that it has started itself sends a second one to each database, and a third,
/// until no process is left for anything else of the server.
#[test]
#[ignore = "long"]
fn a_launcher_that_is_started_again_leaves_the_workers_that_are_there() {
    let cluster = start("launcher");
    let mut session = cluster.connect();
    session.run("CREATE DATABASE other");
    let mut other = cluster.connect_to("other");
    other.run("CREATE EXTENSION taskq");
    other.run("SELECT taskq.insert_task('first', 'x')");
    drop(other);
    let mut before = vec![settled_down(&mut session, "postgres"), settled_down(&mut session, "other")];
    before.sort_unstable();
    for round in 0..3 {
        let old = until("a launcher is there", || launcher(&mut session));
        session.run(&format!("SELECT pg_terminate_backend({old})"));
        until("another launcher is there", || launcher(&mut session).filter(|new| *new != old));
        // It looks at once; a worker that it starts is there within milliseconds.
        thread::sleep(Duration::from_secs(2));
        let mut now = workers(&mut session, None);
        now.sort_unstable();
        assert_eq!(now, before, "round {round}");
    }
    // And the new launcher hears of the end of a worker that it has not started.
    let began = Instant::now();
    session.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'taskq worker'");
    until("new workers are there", || {
        let now = workers(&mut session, None);
        (now.len() == 2 && !now.iter().any(|pid| before.contains(pid))).then_some(())
    });
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// A restore makes the extension and fills its tables without calling any function of it: nothing tells the launcher.
#[test]
#[ignore = "long"]
fn a_database_into_which_the_extension_comes_later_gets_a_worker() {
    let cluster = start("later");
    let mut session = cluster.connect();
    session.run("CREATE DATABASE later");
    session.run("SELECT pg_reload_conf()");
    // Long enough for a worker to come, find no extension, and leave.
    thread::sleep(Duration::from_secs(5));
    assert_eq!(workers(&mut session, Some("later")), [0; 0]);
    let mut later = cluster.connect_to("later");
    later.run("CREATE EXTENSION taskq");
    later.run(
        "INSERT INTO taskq.schedule (name, cron, timezone, task, overlap, backfill, next_at)
         VALUES ('tick', '* * * * * *', 'UTC', '{\"action\": \"x\"}', 'queue', 'one', now())",
    );
    // A minute is what the reference promises.
    let began = Instant::now();
    while later.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE id LIKE 'tick@%'") == 0 {
        assert!(began.elapsed() < Duration::from_secs(75), "no worker has come");
        thread::sleep(Duration::from_millis(200));
    }
    runs(&mut later, "tick", 2);
}

/// The owner of a database need not be a superuser, and may set a role for all sessions of it.
#[test]
fn a_role_that_is_set_for_the_database_is_not_the_workers() {
    let cluster = start("role");
    let mut session = cluster.connect();
    session.run("CREATE ROLE mallory; ALTER DATABASE postgres SET role = 'mallory'");
    let old = settled_down(&mut session, "postgres");
    session.run(&format!("SELECT pg_terminate_backend({old})"));
    until("another worker", || workers(&mut session, None).into_iter().find(|pid| *pid != old));
    session.run("SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"x\"}', overlap => 'queue')");
    runs(&mut session, "tick", 3);
    assert!(!cluster.log().contains("permission denied"), "{}", cluster.log());
}
