//! What `own_tasks` does besides granting waits for no other transaction either: a key that a claim in an open
//! transaction has locked, a rider that an open insert depends on, a schedule whose task needs what another transaction
//! is just making.
//!
//! On wrong code the worker hangs until that transaction ends, with the tasks of up to 200 leases in its hands, or two
//! workers end in a deadlock. A wait would run into the statement timeout here.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

fn at(sessions: &mut [&mut Session], time: &str) {
    for session in sessions {
        session.set_now(Some(&format!("2030-01-01 {time}Z")));
    }
}

fn owned_at_once(session: &mut Session, actions: &[&str]) -> Vec<String> {
    session.run("SET statement_timeout = '5s'");
    session.own("w", 10, actions).unwrap().into_iter().map(|grant| grant.task_id).collect()
}

/// Both ways in which an overdue try may end: with another one, or with the end of the task.
fn with_tries(variant: impl Fn(&Db, Option<i32>)) {
    for max_tries in [None, Some(1)] {
        let db = Db::new();
        variant(&db, max_tries);
    }
}

#[test]
fn for_a_claim_that_parks_under_its_key() {
    with_tries(|db, max_tries| {
        let (mut open, mut other) = (db.connect(), db.connect());
        at(&mut [&mut open, &mut other], "00:00:00");
        open.insert(json!([
            {"id": "t1", "action": "x", "merge_key": "k", "max_tries": max_tries},
            {"id": "plain", "action": "x"},
        ]))
        .unwrap();
        assert_eq!(open.own_with("w", 2, &["x"], "lease => '1 minute'").unwrap().len(), 2);
        open.insert(json!([{"id": "t2", "action": "x", "merge_key": "k"}])).unwrap();
        // Parks t2 under the key, and keeps the key's row locked.
        open.run("BEGIN");
        assert!(open.own("w", 1, &["x"]).unwrap().is_empty());
        at(&mut [&mut other], "00:02:00");
        // What has nothing to do with the key comes back.
        assert_eq!(owned_at_once(&mut other, &["x"]), ["plain"]);
        // The late return of the other waits for nothing but the open transaction.
        open.run("COMMIT");
        at(&mut [&mut other], "00:02:02");
        let next = owned_at_once(&mut other, &["x"]);
        assert_eq!(next.len(), 1, "the key is free a second later: {next:?}");
        if max_tries.is_some() {
            assert_eq!(other.state("t1"), "aborted");
        }
    });
}

/// What has another try goes on to it at once; only an end has to wait for the dependent. On wrong code both wait.
#[test]
fn for_an_insert_that_depends_on_it() {
    with_tries(|db, max_tries| {
        let (mut open, mut other) = (db.connect(), db.connect());
        at(&mut [&mut open, &mut other], "00:00:00");
        open.insert(
            json!([{"id": "t1", "action": "x", "max_tries": max_tries}, {"id": "t2", "action": "x"}]),
        )
        .unwrap();
        let held = open.own_with("w", 2, &["x"], "lease => '1 minute'").unwrap();
        open.run("BEGIN");
        open.insert(json!([{"id": "child", "action": "y", "depends_on": ["t1", "t2"]}])).unwrap();
        at(&mut [&mut other], "00:02:00");
        let next = owned_at_once(&mut other, &["x", "y"]);
        assert_eq!(next, if max_tries.is_some() { vec!["t2"] } else { vec!["t1", "t2"] });
        open.run("COMMIT");
        at(&mut [&mut open, &mut other], "00:02:02");
        // The child has waited all the time for the tries that count.
        for grant in held {
            let late = open.give(&grant.task_id, grant.token, "completed");
            assert_eq!(late.is_ok(), max_tries.is_some() && grant.task_id == "t1", "{late:?}");
        }
        assert_eq!(other.state("child"), "blocked");
        assert_eq!(other.broken(), Vec::<String>::new());
    });
}

#[test]
fn for_an_insert_that_depends_on_a_rider() {
    with_tries(|db, max_tries| {
        let (mut open, mut other) = (db.connect(), db.connect());
        at(&mut [&mut open, &mut other], "00:00:00");
        open.insert(json!([
            {"id": "t1", "action": "x", "merge_key": "k", "max_tries": max_tries},
            {"id": "t2", "action": "x", "merge_key": "k", "max_tries": max_tries},
        ]))
        .unwrap();
        assert_eq!(open.own_with("w", 2, &["x"], "lease => '1 minute'").unwrap().len(), 1);
        open.run("BEGIN");
        open.insert(json!([{"id": "child", "action": "y", "depends_on": ["t2"]}])).unwrap();
        at(&mut [&mut other], "00:02:00");
        assert!(owned_at_once(&mut other, &["x", "y"]).is_empty());
        assert!(owned_at_once(&mut other, &["unrelated"]).is_empty());
        open.run("COMMIT");
        at(&mut [&mut other], "00:02:02");
        let next = owned_at_once(&mut other, &["x"]);
        if max_tries.is_some() {
            assert!(next.is_empty());
            let states = ["t1", "t2", "child"].map(|id| other.state(id));
            assert_eq!(states, ["aborted", "aborted", "aborted"]);
        } else {
            assert_eq!(next.len(), 1);
        }
    });
}

#[test]
fn and_leaves_tries_alone_that_it_cannot_end() {
    let (_db, [mut open, mut block, mut holder]) = Db::connected();
    at(&mut [&mut open, &mut block, &mut holder], "00:00:00");
    open.insert(json!([{"id": "t1", "action": "x", "merge_key": "k"}])).unwrap();
    let grant = holder.own_one_with("x", "lease => '1 minute'");
    open.insert(json!([{"id": "t2", "action": "x", "merge_key": "k"}])).unwrap();
    open.run("BEGIN");
    assert!(open.own("w", 1, &["x"]).unwrap().is_empty());
    // A worker in a transaction that stays open finds t1 overdue and the key locked.
    at(&mut [&mut block, &mut holder], "00:02:00");
    block.run("BEGIN");
    assert!(owned_at_once(&mut block, &["x"]).is_empty());
    open.run("COMMIT");
    // The late return does not wait for that worker.
    holder.run("SET statement_timeout = '5s'");
    holder.complete(&grant);
    block.run("COMMIT");
    assert_eq!(owned_at_once(&mut block, &["x"]), ["t2"]);
}

#[test]
fn for_an_insert_that_makes_what_a_run_of_a_schedule_needs() {
    let needs = [
        (
            "a merge key",
            r#"{"action": "s", "merge_key": "k"}"#,
            r#"insert_tasks('[{"id": "other", "action": "s", "merge_key": "k"}]')"#,
        ),
        (
            "its id",
            r#"{"action": "s"}"#,
            r#"insert_tasks('[{"id": "s@2030-01-01T00:01:00Z", "action": "y"}]')"#,
        ),
        (
            "the guard of the graph",
            r#"{"action": "s", "depends_on": [{"id": "p", "condition": "settled"}], "to_signal_after": ["q"]}"#,
            r#"add_dependencies('[{"after": "y1", "run": "y2"}]')"#,
        ),
    ];
    for (name, task, call) in needs {
        let (db, [mut open, mut worker]) = Db::connected();
        at(&mut [&mut open, &mut worker], "00:00:00");
        worker.insert(json!([{"id": "p", "action": "p"}, {"id": "q", "action": "q"}])).unwrap();
        worker.insert(json!([{"id": "y1", "action": "y"}, {"id": "y2", "action": "y"}])).unwrap();
        worker.perform("p", "completed");
        worker.run(&format!("SELECT taskq.schedule('s', '* * * * *', '{task}')"));
        worker.run("SELECT taskq.schedule('r', '* * * * *', '{\"action\": \"r\"}')");
        open.run("BEGIN");
        open.run(&format!("SELECT taskq.{call}"));
        let start = Instant::now();
        for _ in 0..50 {
            assert!(owned_at_once(&mut worker, &["s", "r"]).is_empty(), "{name}");
        }
        let nothing_due = start.elapsed();
        at(&mut [&mut open, &mut worker], "00:01:01");
        let start = Instant::now();
        assert_eq!(owned_at_once(&mut worker, &["s", "r"]), ["r@2030-01-01T00:01:00Z"], "{name}");
        for _ in 0..50 {
            assert!(owned_at_once(&mut worker, &["s", "r"]).is_empty(), "{name}");
        }
        // Each try waits for a tenth of a second.
        let most = 3 * nothing_due + Duration::from_secs(3);
        assert!(start.elapsed() < most, "{name}: it is not tried again in each call");
        assert_eq!(
            worker.one::<i64>("SELECT count(*) FROM taskq.schedules WHERE problem IS NOT NULL"),
            0,
            "{name}"
        );
        // A call that may sleep keeps nothing locked meanwhile.
        assert!(worker.own_with("w", 1, &["none"], "wait => '0.1 seconds'").unwrap().is_empty());
        open.run("COMMIT");
        // A second later another session, or this one, runs it.
        let mut next = db.connect();
        at(&mut [&mut next], "00:01:02");
        let ids = owned_at_once(&mut next, &["s", "y"]);
        assert!(!ids.is_empty(), "{name}: {ids:?}");
        assert_eq!(
            next.one::<i64>(
                "SELECT count(*) FROM taskq.schedule WHERE name = 's' AND next_at > taskq.clock()"
            ),
            1,
            "{name}: it is not due any more"
        );
    }
}

/// Two workers find many leases over, of holders of keys and of others, and park under these keys at the same time.
#[test]
#[ignore = "long"]
fn two_workers_do_not_meet_in_a_deadlock() {
    let (db, [mut main]) = Db::connected();
    for round in 0..30 {
        let keyed: serde_json::Value = (0..20)
            .flat_map(|key| (0..3).map(move |i| (key, i)))
            .map(|(key, i)| json!({"id": format!("r{round}k{key}i{i}"), "action": "x", "merge_key": format!("k{key}")}))
            .collect();
        main.insert(keyed).unwrap();
        main.own_with("dead", 100, &["x"], "lease => '1 millisecond'").unwrap();
        let more: serde_json::Value = (0..20)
            .map(|key| json!({"id": format!("r{round}late{key}"), "action": "x", "merge_key": format!("k{key}")}))
            .collect();
        main.insert(more).unwrap();
        let both: Vec<_> = (0..2)
            .map(|_| {
                db.connect().background(|session| {
                    session.own_with("w", 100, &["x"], "lease => '1 millisecond'").map(|grants| grants.len())
                })
            })
            .collect();
        for worker in both {
            if let Err(error) = worker.join().1 {
                panic!("round {round}: {} {error:?}", sqlstate(&error));
            }
        }
        assert_eq!(main.broken(), Vec::<String>::new());
    }
}
