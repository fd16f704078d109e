//! What upkeep touches is not hostage to the transaction of the call that happened to do it, and it keeps up all the
//! same.
//!
//! On wrong code a worker written as a function or a DO block hides the due tasks and overdue leases of all workers
//! while it works; leases that are not needed stand before those that count; settled tasks pile up where all use
//! transaction blocks.

use std::time::Duration;

use serde_json::{Value, json};
use taskq_tests::{Db, Session, until};

fn many(action: &str, n: usize) -> Value {
    (1..=n).map(|i| json!({"id": format!("{action}{i}"), "action": action})).collect()
}

fn owned(session: &mut Session, action: &str) -> usize {
    session.own("other", 1000, &[action]).unwrap().len()
}

/// Calls from within something that goes on, with what it takes to call them.
const WITHIN: [(&str, &str); 10] = [
    ("a DO block", "DO $$ BEGIN PERFORM taskq.own_tasks('w', 1, '{x}'); PERFORM pg_sleep(60); END $$"),
    ("a function", "SELECT work()"),
    ("an expression of a function", "SELECT work_too()"),
    ("an INSERT", "INSERT INTO done SELECT task_id, pg_sleep(60)::text FROM taskq.own_tasks('w', 1, '{x}')"),
    (
        "a CREATE TABLE AS",
        "CREATE TABLE got AS SELECT task_id, pg_sleep(60)::text FROM taskq.own_tasks('w', 1, '{x}')",
    ),
    ("a query that works on the rows", "SELECT task_id, pg_sleep(60) FROM taskq.own_tasks('w', 1, '{x}')"),
    (
        "a query that returns them",
        "SELECT taskq.complete_task(task_id, to_jsonb(pg_sleep(60)::text)) FROM taskq.own_tasks('w', 1, '{x}')",
    ),
    ("a join", "SELECT task_id FROM taskq.own_tasks('w', 1, '{x}'), LATERAL (SELECT pg_sleep(60)) AS work"),
    ("several calls", "SELECT taskq.own_tasks('w', 1, '{x}'), pg_sleep(60)"),
    ("a transaction block", "BEGIN; SELECT taskq.own_tasks('w', 1, '{x}'); SELECT pg_sleep(60)"),
];

/// Leases that are over, of tasks that no worker holds: enough to fill a step many times.
fn leave_stale_leases(session: &mut Session, n: i32) {
    session.run(&format!(
        "INSERT INTO taskq.lease (deadline, base, keeper_no)
         SELECT '2000-01-01'::timestamptz + n * interval '1 second', n, n FROM generate_series(1, {n}) AS n"
    ));
}

fn leases(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.lease")
}

#[test]
fn what_is_due_is_there_for_others_while_a_worker_goes_on() {
    for (name, call) in WITHIN {
        let (_db, [mut session, worker]) = Db::connected();
        session.run(
            "CREATE TABLE done (id text, note text);
             CREATE FUNCTION work() RETURNS void LANGUAGE plpgsql AS $$
             BEGIN PERFORM * FROM taskq.own_tasks('w', 1, '{x}'); PERFORM pg_sleep(60); END $$;
             CREATE FUNCTION work_too() RETURNS void LANGUAGE plpgsql AS $$
             DECLARE got text[] := ARRAY(SELECT task_id FROM taskq.own_tasks('w', 1, '{x}'));
             BEGIN PERFORM pg_sleep(60); END $$",
        );
        // A hundred tasks are ready and a hundred due, and the leases of a hundred others are over.
        session.insert(many("x", 100)).unwrap();
        session.insert(many("y", 100)).unwrap();
        for _ in 0..100 {
            session.own_with("dead", 1, &["y"], "lease => '1 millisecond'").unwrap();
        }
        let later =
            (1..=100).map(|i| json!({"id": format!("later{i}"), "action": "x", "delay": "1 millisecond"}));
        session.insert(later.collect()).unwrap();
        let working = worker.background(move |session| session.batch_execute(call));
        session.until_asleep(working.pid());
        assert!(owned(&mut session, "x") >= 198, "{name}: what was due");
        assert!(owned(&mut session, "y") >= 99, "{name}: what was overdue");
        session.run(&format!("SELECT pg_terminate_backend({})", working.pid()));
        assert!(working.join().1.is_err());
    }
}

#[test]
fn a_query_of_its_own_does_the_upkeep_of_all() {
    for call in [
        "SELECT * FROM taskq.own_tasks('w', 1, '{x}')",
        "SELECT taskq.own_tasks('w', 1, '{x}')",
        "WITH got AS MATERIALIZED (SELECT * FROM taskq.own_tasks('w', 1, '{x}')) SELECT count(*) FROM got",
        "EXECUTE own",
    ] {
        let (_db, [mut session]) = Db::connected();
        session.run("PREPARE own AS SELECT * FROM taskq.own_tasks('w', 1, '{x}')");
        session.insert(many("y", 100)).unwrap();
        for _ in 0..100 {
            session.own_with("dead", 1, &["y"], "lease => '1 millisecond'").unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
        session.run(call);
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.run WHERE grantable"), 100, "{call}");
    }
}

#[test]
fn leases_that_are_not_needed_do_not_stand_before_those_that_count() {
    for block in [false, true] {
        let (_db, [mut session]) = Db::connected();
        session.set_now(Some("2030-01-01 00:00:00Z"));
        session.insert(json!([{"id": "urgent", "action": "x", "priority": 100}])).unwrap();
        session.own_one_with("x", "lease => '1 minute'");
        session.insert(many("x", 100)).unwrap();
        leave_stale_leases(&mut session, 3000);
        session.set_now(Some("2030-01-01 00:02:00Z"));
        if block {
            session.run("BEGIN");
        }
        assert_eq!(session.own_one("x").task_id, "urgent", "in a block: {block}");
        if block {
            session.run("COMMIT");
        }
        assert_eq!(leases(&mut session), 1, "its own, in a block: {block}");
    }
}

#[test]
fn an_idle_waiter_does_not_clean_away_the_same_leases_again_and_again() {
    let (db, [mut session]) = Db::connected();
    leave_stale_leases(&mut session, 30_000);
    let waiter = db.connect().background(|session| {
        // The worker that it would call does remove them.
        session.run("SET statement_timeout = 0; SET taskq.background_worker = off");
        session.own_with("w", 1, &["x"], "wait => '6 seconds'").unwrap().len()
    });
    session.until_asleep(waiter.pid());
    let before: String = session.one("SELECT pg_current_wal_insert_lsn()::text");
    std::thread::sleep(Duration::from_secs(3));
    let written: i64 =
        session.one(&format!("SELECT (pg_current_wal_insert_lsn() - '{before}'::pg_lsn)::bigint"));
    // Other tests write, too; what one round of cleaning writes is a multiple of this.
    println!("{written} bytes of WAL in three seconds");
    assert_eq!(leases(&mut session), 30_000, "nothing is locked or removed by who sleeps");
    assert_eq!(waiter.join().1, 0);
    let after_one = leases(&mut session);
    assert!(after_one <= 20_000, "its end took some along: {after_one} are left");
    for _ in 0..3 {
        session.own("w", 1, &["x"]).unwrap();
    }
    assert_eq!(leases(&mut session), 0);
}

#[test]
fn an_overdue_task_behind_leases_that_are_not_needed_wakes_a_call_in_time() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    session.own_one_with("x", "lease => '1 second'");
    leave_stale_leases(&mut session, 5000);
    let start = std::time::Instant::now();
    let got = session.own_with("w", 1, &["x"], "wait => '20 seconds'").unwrap();
    assert_eq!(got.len(), 1);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

/// A call that claims removes a part, and sends for a worker that removes the rest.
#[test]
fn what_is_kept_does_not_grow_in_a_transaction_block_and_outside() {
    for block in [false, true] {
        let (_db, [mut session]) = Db::connected();
        session.run("SET taskq.retention = 0");
        for round in 0..6 {
            session.run(&format!(
                "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[1000]),
                                                        ids => (SELECT array_agg('r{round}i' || i) FROM generate_series(1, 1000) AS i))"
            ));
            if block {
                session.run("BEGIN");
            }
            let done = "SELECT count(r.*) FROM (SELECT array_agg(task_id) AS ids, array_agg(token) AS tokens
                          FROM taskq.own_tasks('w', 1000, '{x}')) AS g
                        CROSS JOIN LATERAL taskq.return_tasks(g.ids, g.tokens) AS r";
            assert_eq!(session.one::<i64>(done), 1000);
            if block {
                session.run("COMMIT");
            }
        }
        // The last of these calls may have come before its own had settled.
        session.own("w", 1, &["x"]).unwrap();
        until("what is over has gone", || {
            (session.one::<i64>("SELECT count(*) FROM taskq.settled") <= 200).then_some(())
        });
    }
}

/// A worker removes what has expired.
#[test]
fn a_block_that_stays_open_does_not_hold_back_the_reuse_of_an_id() {
    let (_db, [mut open, mut other]) = Db::connected();
    open.run("SET taskq.retention = 0");
    open.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    open.perform("x", "completed");
    open.run("BEGIN");
    assert!(open.own("w", 1, &["x"]).unwrap().is_empty());
    other.run("SET statement_timeout = '5s'");
    until("a has gone", || (other.state("a") == "gone").then_some(()));
    other.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    open.run("COMMIT");
    assert_eq!(other.state("a"), "ready");
}

/// What stands behind many of other actions comes with the next calls: by a worker, or by the calls alone where none can come.
#[test]
#[ignore = "long"]
fn overdue_tasks_are_not_hidden_by_those_of_other_actions() {
    for (setting, block) in [("on", true), ("on", false), ("off", true), ("off", false)] {
        let (db, [mut session]) = Db::with_tasks(many("y", 3));
        assert_eq!(session.own_with("dead", 100, &["y"], "lease => '1 hour'").unwrap().len(), 3);
        session.run("SELECT count(*) FROM taskq.insert_many('z', array_fill('b'::text, ARRAY[9000]))");
        for _ in 0..9 {
            assert_eq!(session.own_with("dead", 1000, &["z"], "lease => '30 minutes'").unwrap().len(), 1000);
        }
        for table in ["run", "lease"] {
            session.run(&format!("UPDATE taskq.{table} SET deadline = deadline - interval '2 hours'"));
        }
        let mut other = db.connect();
        other.run(&format!("SET taskq.background_worker = {setting}"));
        until("one comes", || {
            if block {
                other.run("BEGIN");
            }
            let had = other.own("w", 1, &["y"]).unwrap().len();
            if block {
                other.run("COMMIT");
            }
            (had == 1).then_some(())
        });
    }
}
