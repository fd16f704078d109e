//! The looks for what is due, under a snapshot that is held for long.
//!
//! Leases that were kept, delayed tasks that have run, deferred signals that were counted, tasks whose retention is
//! over: what is left of them stays at the low end of an index while such a snapshot is there. A claim that looked
//! there from the beginning would read all of it, each time. Pages are counted, not seconds.

use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use taskq_tests::{Db, Session, until};

const MANY: usize = 6_000;

fn tasks(count: usize, task: Value) -> Value {
    (0..count).map(|_| task.clone()).collect()
}

fn read_on(db: &Db) -> Session {
    let mut reader = db.connect();
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let _: i64 = reader.one("SELECT count(*) FROM taskq.run");
    reader
}

/// A claim reads no more after `leave_behind` than before, but for now and then.
fn reads_no_more_after(what: &str, leave_behind: impl FnOnce(&mut Session)) {
    let (db, [mut session, mut others]) = Db::with_tasks(tasks(500, json!({"action": "x"})));
    for _ in 0..50 {
        session.perform("x", "completed");
    }
    let claims = |session: &mut Session| {
        let mut pages: Vec<i64> = (0..21).map(|_| session.pages_of_a_claim("x")).collect();
        pages.sort_unstable();
        pages
    };
    let first = claims(&mut session)[10];
    let _reader = read_on(&db);
    leave_behind(&mut others);
    // What the planner learns changes nothing.
    session.run("ANALYZE");
    until(&format!("{what}: a claim reads at most twice the {first} pages of the first"), || {
        session.perform("x", "completed");
        session.insert(tasks(1, json!({"action": "x"}))).unwrap();
        (claims(&mut session)[15] <= 2 * first).then_some(())
    });
}

#[test]
fn leases_that_were_kept() {
    reads_no_more_after("leases", |others| {
        others.run(&format!(
            "INSERT INTO taskq.lease (deadline, base, keeper_no)
             SELECT now() - n * interval '1 second', n, n FROM generate_series(1, {}) AS n",
            4 * MANY
        ));
        others.run("DELETE FROM taskq.lease");
    });
}

#[test]
fn delayed_tasks_that_have_come() {
    reads_no_more_after("delayed tasks", |others| {
        others.insert(tasks(MANY, json!({"action": "x", "delay": "1 millisecond", "priority": -1}))).unwrap();
        sleep(Duration::from_millis(10));
        let held = others.own("w", 100_000, &["x"]).unwrap();
        assert!(held.len() > MANY);
        others.insert(tasks(500, json!({"action": "x"}))).unwrap();
    });
}

#[test]
fn signals_that_were_counted() {
    reads_no_more_after("signals", |others| {
        others.run(&format!(
            "INSERT INTO taskq.countdown SELECT 1000000 + n, 0, 1, 0, 0, NULL, 0 FROM generate_series(1, {}) AS n",
            4 * MANY
        ));
        others.run("DELETE FROM taskq.countdown");
    });
}

#[test]
fn tasks_that_were_removed() {
    reads_no_more_after("removed tasks", |others| {
        others.insert(tasks(MANY, json!({"action": "y", "retention": "1 millisecond"}))).unwrap();
        others.run(
            "SELECT count(*)
               FROM (SELECT array_agg(o.task_id) AS ids, array_agg(o.token) AS tokens
                       FROM taskq.own_tasks('w', 100000, '{y}') AS o) AS o
              CROSS JOIN LATERAL taskq.return_tasks(o.ids, o.tokens, 'completed')",
        );
        sleep(Duration::from_millis(10));
        others.run("SELECT taskq.maintain()");
    });
}

/// What is committed after its time, below what a backend remembers, is found by it as well, a little later.
#[test]
fn what_comes_late_is_found() {
    let (db, [mut session, mut others, mut open]) = Db::with_tasks(tasks(20, json!({"action": "x"})));
    let _reader = read_on(&db);
    // Dead entries, so that the session remembers where they end.
    others.insert(tasks(MANY, json!({"action": "x", "delay": "1 millisecond"}))).unwrap();
    sleep(Duration::from_millis(10));
    others.own("w", 100_000, &["x"]).unwrap();
    others.insert(json!([{"id": "leased", "action": "x"}])).unwrap();
    open.run("BEGIN");
    open.insert(json!([{"id": "delayed", "action": "x", "delay": "1 millisecond"}])).unwrap();
    let leased = open.own_one_with("x", "lease => '1 millisecond'");
    assert_eq!(leased.task_id, "leased");
    sleep(Duration::from_millis(10));
    for _ in 0..20 {
        assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
    }
    open.run("COMMIT");
    let mut found = Vec::new();
    until("both are granted", || {
        found.extend(session.own("w", 2, &["x"]).unwrap().into_iter().map(|grant| grant.task_id));
        (found.len() == 2).then_some(())
    });
    found.sort();
    assert_eq!(found, ["delayed", "leased"]);
}

/// The clock of a session that is set back: nothing is below what was remembered at a later time.
#[test]
fn a_clock_that_goes_back_forgets() {
    let (db, [mut session, mut others]) = Db::with_tasks(tasks(1, json!({"action": "x"})));
    let _reader = read_on(&db);
    others.insert(tasks(MANY, json!({"action": "x", "delay": "1 millisecond"}))).unwrap();
    sleep(Duration::from_millis(10));
    others.run("SET taskq.lease = ''");
    others.own("w", 100_000, &["x"]).unwrap();
    session.set_now(Some("2100-01-01"));
    for _ in 0..3 {
        assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
    }
    session.set_now(None);
    others.insert(json!([{"id": "soon", "action": "x", "delay": "10 milliseconds"}])).unwrap();
    sleep(Duration::from_millis(20));
    assert_eq!(session.own_one("x").task_id, "soon");
}
