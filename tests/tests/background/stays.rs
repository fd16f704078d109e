//! A worker that stays: what it does on time without a call, and that it is in the way of no session.

use std::time::{Duration, Instant};

use postgres::fallible_iterator::FallibleIterator;
use serde_json::json;
use taskq_tests::{Cluster, Session, until};

use super::cluster::{runs, settled_down, start, workers};

const EVERY_SECOND: &str =
    "SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"x\"}', overlap => 'queue')";

/// One cluster for all of it.
#[test]
fn it_does_what_is_due_and_is_in_the_way_of_none() {
    let cluster = start("stays");
    let session = &mut cluster.connect();
    it_sleeps_while_nothing_happens(session);
    schedules_deadlines_delays_and_retention_are_kept_without_a_call(&cluster, session);
    an_error_in_one_kind_stops_neither_the_others_nor_the_worker(&cluster, session);
    a_row_that_contradicts_another_keeps_it_from_nothing(&cluster, session);
    a_role_that_is_set_for_the_database_is_not_its_own(&cluster, session);
    the_setting_switches_it_off_and_on(session);
    the_extension_comes_and_goes(&cluster, session);
    a_database_that_is_named_comes_and_goes(&cluster, session);
    assert_eq!(session.broken(), [""; 0]);
}

/// In a cluster in which nothing is committed it does not even look.
fn it_sleeps_while_nothing_happens(session: &mut Session) {
    session
        .insert(json!([{"id": "far", "action": "x", "delay": "1 day"}, {"id": "a", "action": "x"}]))
        .unwrap();
    session.own_one_with("x", "lease => '1 hour'");
    let pid = settled_down(session, "postgres");
    // It looks once more for what was committed since its last look began.
    std::thread::sleep(Duration::from_secs(5));
    let changed = format!("SELECT max(state_change)::text FROM pg_stat_activity WHERE pid = {pid}");
    let before: String = session.one(&changed);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(session.one::<String>(&changed), before, "it has slept all the time");
    let held: i64 = session.one(&format!(
        "SELECT (SELECT count(*) FROM pg_locks WHERE pid = {pid} AND NOT (locktype = 'advisory' AND objsubid = 29811)) \
              + (SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND (backend_xmin IS NOT NULL OR xact_start IS NOT NULL))",
    ));
    assert_eq!(held, 0, "no lock but its post, no snapshot, no transaction");
    // Something near wakes it.
    session.insert(json!([{"id": "near", "action": "x", "delay": "1 second"}])).unwrap();
    until("it has woken up", || (session.one::<String>(&changed) != before).then_some(()));
    session.run("SELECT taskq.cancel_tasks('{far, near, a}'); SELECT taskq.delete_tasks('{far, near, a}')");
}

fn schedules_deadlines_delays_and_retention_are_kept_without_a_call(
    cluster: &Cluster,
    session: &mut Session,
) {
    let pid = settled_down(session, "postgres");

    // It was asleep with nothing to do; the commit of the schedule tells it.
    session.run("SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"x\"}', overlap => 'queue')");
    runs(session, "tick", 4);
    let late: f64 = session.one(
        "SELECT max(extract(epoch FROM inserted_at - split_part(id, '@', 2)::timestamptz))::double precision \
           FROM taskq.tasks WHERE id LIKE 'tick@%'",
    );
    assert!((0.0..3.0).contains(&late), "the latest run came {late} s late");
    session.run("SELECT taskq.unschedule('tick')");

    // A try that runs out, and was the last.
    session.insert(json!([{"id": "held", "action": "h", "max_tries": 1},
                          {"id": "after", "action": "h", "depends_on": [{"id": "held", "condition": "settled"}]}])).unwrap();
    session.own_one_with("h", "lease => '300 milliseconds'");
    until("the worker aborts it", || (session.state("held") == "aborted").then_some(()));
    assert_eq!(session.state("after"), "ready");

    // A try that runs out, and was not the last: it is there again, which listeners learn of.
    session.run("SELECT taskq.set_action('n', notify => true)");
    let channel: String = session.one("SELECT taskq.action_channel('n')");
    let mut listener = cluster.connect();
    listener.run(&format!("LISTEN {channel}"));
    session.insert(json!([{"id": "delayed", "action": "n", "delay": "700 milliseconds"}])).unwrap();
    let moved = "SELECT NOT EXISTS (SELECT FROM taskq.scheduled) AND EXISTS (SELECT FROM taskq.run r \
                 JOIN taskq.task t USING (task_no) WHERE t.id = 'delayed')";
    until("the worker moves it", || session.one::<bool>(moved).then_some(()));
    let mut notifications = listener.notifications();
    let note = notifications.timeout_iter(Duration::from_secs(10)).next().unwrap();
    assert!(note.is_some_and(|note| note.channel() == channel), "a notification");

    // What is done now is swept at the next round, which something else brings about.
    session.run("SET taskq.retention = 0");
    session.perform("n", "completed");
    session.run("SELECT taskq.schedule('tock', '* * * * * *', '{\"action\": \"y\"}')");
    until("the worker removes it", || (session.state("delayed") == "gone").then_some(()));
    session.run("SELECT taskq.unschedule('tock'); RESET taskq.retention");

    assert_eq!(settled_down(session, "postgres"), pid, "it was the same process all the time");
    assert_eq!(session.broken(), [""; 0]);
}

fn an_error_in_one_kind_stops_neither_the_others_nor_the_worker(cluster: &Cluster, session: &mut Session) {
    session.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
    let pid = settled_down(session, "postgres");
    session.insert(json!([{"id": "held", "action": "h", "max_tries": 1}])).unwrap();
    session.own_one_with("h", "lease => '1 second'");
    session.run("ALTER TABLE taskq.lease RENAME TO hidden");
    session.run("SELECT pg_sleep(1.5)");
    assert_eq!(session.state("held"), "in-progress");
    session.run("ALTER TABLE taskq.hidden RENAME TO lease");
    until("the worker comes to it again", || (session.state("held") == "aborted").then_some(()));
    assert_eq!(workers(session, Some("postgres")), [pid], "the worker has survived");
    assert!(cluster.log().contains("taskq worker: leases failed"), "and complained");
}

/// A task that has ended, and is in progress as well, made by hand: on wrong code no deadline is looked after any more.
fn a_row_that_contradicts_another_keeps_it_from_nothing(cluster: &Cluster, session: &mut Session) {
    session.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
    let pid = settled_down(session, "postgres");
    session.insert(json!([{"id": "bad", "action": "b", "max_tries": 1}])).unwrap();
    session.perform("b", "completed");
    session.run(
        "INSERT INTO taskq.run (task_no, position, lane, prev_nonce, action_no, priority, failures, dependencies, gated,
                                tries, nonce, deadline, granted_at, grantable, limited, keyed, actor_id)
         SELECT t.task_no, t.task_no, 0, 0, t.action_no, 0, 0, 0, false, 1, 4711 # t.task_no, now(), now(), false, false,
                false, 'ghost' FROM taskq.task AS t;
         INSERT INTO taskq.lease (deadline, base, keeper_no) SELECT now(), 4711, t.task_no FROM taskq.task AS t",
    );
    for id in ["one", "two"] {
        session.insert(json!([{"id": id, "action": "h", "max_tries": 1}])).unwrap();
        session.own_one_with("h", "lease => '300 milliseconds'");
        until("the worker aborts it", || (session.state(id) == "aborted").then_some(()));
    }
    assert_eq!(
        session.all::<String>("SELECT concat_ws(': ', task_id, problem) FROM taskq.check()"),
        ["bad: task is in 2 places"]
    );
    assert_eq!(settled_down(session, "postgres"), pid, "it was the same process all the time");
    let log = cluster.log();
    let told = log.lines().filter(|line| line.contains("taskq leaves task number"));
    // The worker's, and at most one of the session that has owned the two.
    assert!((1..=2).contains(&told.count()), "{log}");
    session.run("DELETE FROM taskq.run; DELETE FROM taskq.lease");
    session.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
}

/// The owner of a database need not be a superuser, and may set a role for all sessions of it. The server brings back a worker that
/// has been ended.
fn a_role_that_is_set_for_the_database_is_not_its_own(cluster: &Cluster, session: &mut Session) {
    session.run("CREATE ROLE mallory; ALTER DATABASE postgres SET role = 'mallory'");
    let old = settled_down(session, "postgres");
    session.run(&format!("SELECT pg_terminate_backend({old})"));
    until("another worker", || workers(session, Some("postgres")).into_iter().find(|pid| *pid != old));
    session.run(EVERY_SECOND);
    runs(session, "tick", 2);
    assert!(!cluster.log().contains("permission denied"), "{}", cluster.log());
    session.run("ALTER DATABASE postgres RESET role; SELECT taskq.unschedule('tick')");
    session.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
}

fn the_setting_switches_it_off_and_on(session: &mut Session) {
    session.run(EVERY_SECOND);
    let number = |session: &mut Session| session.one::<i64>("SELECT count(*) FROM taskq.tasks");
    for _ in 0..3 {
        session.run("ALTER SYSTEM SET taskq.background_worker = off");
        session.run("SELECT pg_reload_conf(), pg_sleep(0.5)");
        let before = number(session);
        session.run("SELECT pg_sleep(1.5)");
        assert_eq!(number(session), before, "it does nothing");
        session.run("ALTER SYSTEM RESET taskq.background_worker");
        session.run("SELECT pg_reload_conf()");
        runs(session, "tick", before + 1);
    }
    session.run("SELECT taskq.unschedule('tick')");
}

fn the_extension_comes_and_goes(cluster: &Cluster, session: &mut Session) {
    for _ in 0..5 {
        let began = Instant::now();
        session.run("DROP EXTENSION taskq");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        session.run("CREATE EXTENSION taskq");
        session.run(EVERY_SECOND);
        runs(session, "tick", 1);
    }
    assert!(!cluster.log().contains("deadlock"), "the worker was in the way of no session");
}

/// The server tries again every five seconds while there is no such database. A worker is a session of its database as any other.
fn a_database_that_is_named_comes_and_goes(cluster: &Cluster, session: &mut Session) {
    session.run("CREATE DATABASE later");
    let mut later = cluster.connect_to("later");
    later.run("CREATE EXTENSION taskq");
    later.run(EVERY_SECOND);
    runs(&mut later, "tick", 2);
    drop(later);
    let in_use = session.batch_execute("DROP DATABASE later").unwrap_err();
    assert_eq!(in_use.code().map(|code| code.code()), Some("55006"));
    let began = Instant::now();
    session.run("DROP DATABASE later WITH (FORCE)");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(workers(session, Some("later")), [0; 0]);
    let more = session.one::<i64>("SELECT count(*) FROM taskq.tasks") + 2;
    runs(session, "tick", more);
}
