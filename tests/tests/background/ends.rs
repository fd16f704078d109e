//! Shutdown, crash, and the end of the worker itself.

use std::time::{Duration, Instant};

use taskq_tests::until;

use super::cluster::{runs, settled_down, standby, start, workers};

#[test]
fn the_server_stops_at_once_and_the_worker_is_back_after_restart_and_crash() {
    let cluster = start("ends");
    let mut session = cluster.connect();
    session.run("SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"x\"}', overlap => 'queue')");
    runs(&mut session, "tick", 2);
    drop(session);
    let began = Instant::now();
    cluster.stop();
    let took = began.elapsed();
    cluster.restart();
    assert!(took < Duration::from_secs(5), "a fast shutdown took {took:?}");
    let mut session = cluster.connect();
    let before: i64 = session.one("SELECT count(*) FROM taskq.tasks");
    runs(&mut session, "tick", before + 2);
    drop(session);

    cluster.crash();
    let mut session = cluster.connect();
    let before: i64 = session.one("SELECT count(*) FROM taskq.tasks");
    runs(&mut session, "tick", before + 2);

    // It may be ended by hand, and comes back.
    session.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'taskq worker'");
    until("the worker is gone", || workers(&mut session, None).is_empty().then_some(()));
    let before: i64 = session.one("SELECT count(*) FROM taskq.tasks");
    runs(&mut session, "tick", before + 2);
    session.run("SELECT taskq.unschedule('tick')");
    settled_down(&mut session, "postgres");
    assert_eq!(session.broken(), [""; 0]);
}

#[test]
fn a_standby_has_no_worker_until_it_is_promoted() {
    let primary = start("primary");
    let mut session = primary.connect();
    session.run("SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"x\"}', overlap => 'queue')");
    runs(&mut session, "tick", 1);
    drop(session);
    let standby = standby("standby", &primary);
    let mut session = standby.connect();
    assert!(session.one::<bool>("SELECT pg_is_in_recovery()"));
    runs(&mut session, "tick", 3);
    drop(primary);
    session.run("SELECT pg_sleep(2)");
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'taskq %'";
    assert_eq!(session.one::<i64>(ours), 0);
    let before: i64 = session.one("SELECT count(*) FROM taskq.tasks");
    assert!(session.one::<bool>("SELECT pg_promote()"));
    runs(&mut session, "tick", before + 2);
    assert_eq!(session.broken(), [""; 0]);
}
