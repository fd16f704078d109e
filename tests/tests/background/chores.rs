//! What the worker does on time.

use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;
use serde_json::json;
use taskq_tests::until;

use super::cluster::{runs, settled_down, start, workers};

#[test]
fn schedules_deadlines_delays_and_retention_are_kept_without_a_call() {
    let cluster = start("chores");
    let mut session = cluster.connect();
    let pid = settled_down(&mut session, "postgres");

    // It was asleep with nothing to do; the commit of the schedule tells it.
    session.run("SELECT taskq.schedule('tick', '* * * * * *', '{\"action\": \"x\"}', overlap => 'queue')");
    runs(&mut session, "tick", 4);
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
    session.run("SELECT taskq.unschedule('tock')");

    assert_eq!(settled_down(&mut session, "postgres"), pid, "it was the same process all the time");
    assert_eq!(session.broken(), [""; 0]);
}

#[test]
fn an_idle_worker_sleeps_and_holds_nothing() {
    let cluster = start("idle");
    let mut session = cluster.connect();
    session
        .insert(json!([{"id": "far", "action": "x", "delay": "1 day"}, {"id": "a", "action": "x"}]))
        .unwrap();
    session.own_one_with("x", "lease => '1 hour'");
    let pid = settled_down(&mut session, "postgres");
    let changed = "SELECT max(state_change)::text FROM pg_stat_activity WHERE backend_type LIKE 'taskq %'";
    let before: String = session.one(changed);
    // Work that brings nothing nearer does not wake it.
    for i in 0..20 {
        session.insert(json!([{"id": format!("b{i}"), "action": "x", "delay": "2 days"}, {"id": format!("c{i}"), "action": "y"}])).unwrap();
        session.own_one_with("y", "lease => '2 hours'");
    }
    session.run("SELECT pg_sleep(2)");
    assert_eq!(session.one::<String>(changed), before, "it has slept all the time");
    let held: i64 = session
        .query_one(
            "SELECT (SELECT count(*) FROM pg_locks WHERE pid = $1) \
                  + (SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND (backend_xmin IS NOT NULL OR xact_start IS NOT NULL))",
            &[&pid],
        )
        .unwrap()
        .get(0);
    assert_eq!(held, 0, "no lock, no snapshot, no transaction");
    // Something nearer does.
    session.insert(json!([{"id": "near", "action": "x", "delay": "1 second"}])).unwrap();
    until("it has woken up", || (session.one::<String>(changed) != before).then_some(()));
}

#[test]
fn an_error_in_one_kind_of_upkeep_stops_neither_the_others_nor_the_worker() {
    let cluster = start("errors");
    let mut session = cluster.connect();
    let pid = settled_down(&mut session, "postgres");
    session.insert(json!([{"id": "held", "action": "h", "max_tries": 1}])).unwrap();
    session.own_one_with("h", "lease => '1 second'");
    session.run("ALTER TABLE taskq.lease RENAME TO hidden");
    session.run("SELECT pg_sleep(1.5)");
    assert_eq!(session.state("held"), "in-progress");
    session.run("ALTER TABLE taskq.hidden RENAME TO lease");
    until("the worker comes to it again", || (session.state("held") == "aborted").then_some(()));
    assert_eq!(workers(&mut session, Some("postgres")), [pid], "the worker has survived");
    assert!(cluster.log().contains("taskq worker: leases failed"), "and complained");
}

/// A task that has ended, and is in progress as well, made by hand: on wrong code no deadline is looked after any more.
#[test]
fn a_row_that_contradicts_another_keeps_the_worker_from_nothing_and_is_in_the_log_once() {
    let cluster = start("contradiction");
    let mut session = cluster.connect();
    let pid = settled_down(&mut session, "postgres");
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
    assert_eq!(session.all::<String>("SELECT task_id FROM taskq.check()"), ["bad"]);
    assert_eq!(settled_down(&mut session, "postgres"), pid, "it was the same process all the time");
    let log = cluster.log();
    let told = log.lines().filter(|line| line.contains("taskq leaves task number"));
    // The worker's, and at most one of the session that has owned the two.
    assert!((1..=2).contains(&told.count()), "{log}");
    session.run("DELETE FROM taskq.run; DELETE FROM taskq.lease");
}
