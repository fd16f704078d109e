//! Merge by key is exact under many claims at once: all that were ready with a key when it was granted end with the first.
//!
//! Why: a claim used to take entries first and to ask for their keys then. Entries with a key that another claim was just
//! taking were given back and ran later: with 40 tasks over 4 keys and 8 claims at once, seven or more ran instead of four.
//! And a task whose deadline had passed never rode, so that after a dead worker a key ran twice. On wrong code more tasks run
//! than there are keys.

use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};
use taskq_tests::{Db, Grant, Progress, Session, sqlstate, until};

use crate::{at, call, ids, owned};

const KEYS: usize = 4;

fn tasks(n: usize) -> Value {
    (0..n)
        .map(|i| json!({"id": format!("t{i}"), "action": "x", "merge_key": format!("k{}", i % KEYS)}))
        .collect()
}

fn left(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'")
}

/// Eight sessions claim at once, each `most` tasks; what all of them were granted.
fn claims(db: &Db, most: i32, prologue: &str) -> Vec<Grant> {
    let barrier = Barrier::new(8);
    let mut sessions: Vec<Session> = (0..8).map(|_| db.connect()).collect();
    thread::scope(|scope| {
        let running: Vec<_> = sessions
            .iter_mut()
            .map(|session| {
                let barrier = &barrier;
                scope.spawn(move || {
                    // Their plans are made beforehand.
                    assert!(session.own("w", most, &["none"]).unwrap().is_empty());
                    session.run(prologue);
                    barrier.wait();
                    let mut grants = session.own("w", most, &["x"]).unwrap();
                    if !prologue.is_empty() {
                        session.run("COMMIT");
                    }
                    grants.extend(session.own("w", most, &["x"]).unwrap());
                    grants
                })
            })
            .collect();
        running.into_iter().flat_map(|claim| claim.join().unwrap()).collect()
    })
}

#[test]
#[ignore = "long"]
fn of_forty_tasks_over_four_keys_four_run_for_eight_claims_at_once() {
    for (what, setting) in [
        ("plain", "SELECT 1"),
        ("limited", "SELECT taskq.set_action('x', max_concurrency => 20)"),
        ("fair", "SELECT taskq.set_action('x', fair => true)"),
        ("rated", "SELECT taskq.set_action('x', rate_limit => 1000, rate_period => '1 second')"),
    ] {
        for (round, most) in [1, 5, 40, 5, 2, 40].into_iter().enumerate() {
            let (db, [mut main]) = Db::connected();
            main.run(setting);
            main.insert(tasks(40)).unwrap();
            let prologue = if round % 2 == 0 { "" } else { "BEGIN" };
            let mut grants = claims(&db, most, prologue);
            // A claim that met a key in others' hands, or a limit, has left its tasks to them.
            grants.extend(main.own("w", 40, &["x"]).unwrap());
            assert_eq!(grants.len(), KEYS, "{what}, {most} at a time: {:?}", ids(&grants));
            assert!(main.broken().is_empty(), "{what}: {:?}", main.broken());
            for grant in &grants {
                main.complete(grant);
            }
            assert_eq!(left(&mut main), 0, "{what}, {most} at a time");
        }
    }
}

#[test]
fn several_actions_and_priorities_are_merged_each_for_itself() {
    let (db, [mut main]) = Db::connected();
    let tasks: Value = (0..48)
        .map(|i| {
            let action = if i % 2 == 0 { "x" } else { "y" };
            json!({"id": format!("t{i}"), "action": action, "merge_key": format!("k{}", i % 3), "priority": i % 5})
        })
        .collect();
    main.insert(tasks).unwrap();
    let barrier = Barrier::new(8);
    let grants: Vec<Grant> = thread::scope(|scope| {
        let running: Vec<_> = (0..8)
            .map(|n| {
                let (barrier, db) = (&barrier, &db);
                scope.spawn(move || {
                    let mut session = db.connect();
                    barrier.wait();
                    session.own("w", 1 + n, &["x", "y"]).unwrap()
                })
            })
            .collect();
        running.into_iter().flat_map(|claim| claim.join().unwrap()).collect()
    });
    let mut all = grants;
    all.extend(main.own("w", 48, &["x", "y"]).unwrap());
    assert_eq!(all.len(), 6, "three keys in two actions: {:?}", ids(&all));
    all.iter().for_each(|grant| main.complete(grant));
    assert_eq!(left(&mut main), 0);
}

#[test]
fn keys_of_an_open_claim_run_nowhere_else_and_a_rollback_frees_them() {
    for end in ["COMMIT", "ROLLBACK", "ROLLBACK TO SAVEPOINT s; COMMIT"] {
        let (db, [mut open, mut main]) = Db::connected();
        main.insert(tasks(12)).unwrap();
        open.run("BEGIN; SAVEPOINT s");
        assert_eq!(open.own("w", 1, &["x"]).unwrap().len(), 1);
        let claim = db.connect().background(|s| s.own("w", 12, &["x"]).unwrap());
        assert_eq!(claim.settle_down(&mut main), Progress::Done);
        let others = claim.join().1;
        assert_eq!(others.len(), KEYS - 1, "the other keys");
        open.run(end);
        let more = main.own("w", 12, &["x"]).unwrap();
        assert_eq!(more.len(), usize::from(end != "COMMIT"), "{end}");
    }
}

#[test]
fn one_that_comes_while_the_leader_is_being_granted_runs_after_it() {
    let (db, [mut open, mut main]) = Db::connected();
    main.insert(tasks(1)).unwrap();
    open.run("BEGIN");
    let leader = open.own("w", 1, &["x"]).unwrap().remove(0);
    main.insert(json!([{"id": "later", "action": "x", "merge_key": "k0"}])).unwrap();
    // It is left alone, not taken and given back: it is not decided yet whether the key is taken.
    let watcher = db.connect();
    let sleeping = watcher.background(|s| s.own_with("w", 1, &["x"], "wait => '40 seconds'").unwrap());
    main.until_asleep(sleeping.pid());
    open.run("COMMIT");
    main.until_asleep(sleeping.pid());
    open.complete(&leader);
    assert_eq!(ids(&sleeping.join().1), ["later"], "the end of the leader wakes for what was passed over");
}

#[test]
fn after_a_dead_worker_nothing_with_its_key_runs_twice() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    session.insert(tasks(40)).unwrap();
    let dead = session.own_with("dead", 40, &["x"], "lease => '1 minute'").unwrap();
    assert_eq!(dead.len(), KEYS);
    at(&mut session, 61.0);
    let next = session.own("w", 40, &["x"]).unwrap();
    assert_eq!(next.len(), KEYS, "one of each key again, the others ride: {:?}", ids(&next));
    for grant in &dead {
        let taken_over = next.iter().any(|n| n.task_id == grant.task_id);
        let error = session.give(&grant.task_id, grant.token, "completed").unwrap_err();
        assert_eq!(sqlstate(&error), "TQ001", "{}, taken over: {taken_over}", grant.task_id);
    }
    for grant in &next {
        session.complete(grant);
    }
    assert_eq!(left(&mut session), 0);
}

/// A task with the key `k` whose second deadline passes at 121 seconds; its last token.
fn backs_off(session: &mut Session) -> Grant {
    let backoff = json!({"kind": "fixed", "initial": "1 hour"});
    at(session, 0.0);
    session.insert(json!([{"id": "a", "action": "x", "merge_key": "k", "backoff": backoff}])).unwrap();
    session.own_one_with("x", "lease => '1 minute'");
    at(session, 61.0);
    let grant = session.own_one_with("x", "lease => '1 minute'");
    at(session, 122.0);
    call(session, "maintain()");
    assert!(owned(session, 9, &["x"]).is_empty(), "it backs off");
    session.insert(json!([{"id": "b", "action": "x", "merge_key": "k"}])).unwrap();
    grant
}

/// Why: such a task was no rider, and ran once more behind the one that had its end.
#[test]
fn one_that_backs_off_after_its_second_deadline_rides_and_its_token_is_void() {
    for held in [false, true] {
        let (_db, [mut session, mut other]) = Db::connected();
        let dead = backs_off(&mut session);
        if held {
            // Then it cannot leave its place, and rides there.
            other.run("BEGIN; SELECT taskq.insert_tasks('[{\"id\": \"c\", \"action\": \"y\", \"depends_on\": [\"a\"]}]')");
        }
        let leader = session.own_one("x");
        assert_eq!(leader.task_id, "b");
        other.run("COMMIT");
        let error = session.give("a", dead.token, "completed").unwrap_err();
        assert_eq!(sqlstate(&error), "TQ001", "{held}");
        assert_eq!(
            session.extend("dead", &[("a", dead.token)], "1 hour").unwrap(),
            [("a".to_owned(), false)]
        );
        assert_eq!(session.broken(), Vec::<String>::new(), "{held}");
        session.complete(&leader);
        let a = session.task("a").unwrap();
        assert_eq!((a.state.as_str(), a.num_tries), ("completed", 2), "{held}");
        let merged: String = session.one("SELECT merged_into FROM taskq.tasks WHERE id = 'a'");
        assert_eq!(merged, "b");
        at(&mut session, 4000.0);
        assert!(owned(&mut session, 9, &["x"]).is_empty(), "{held}: it has ended");
    }
}

#[test]
fn such_a_rider_is_ready_when_its_leader_comes_back() {
    for end in ["pending", "deadline"] {
        let (_db, [mut session]) = Db::connected();
        backs_off(&mut session);
        let leader = session.own_one_with("x", "lease => '1 minute'");
        if end == "pending" {
            session.give_with("b", leader.token, "pending", "retry_after => '1 hour'").unwrap();
        }
        at(&mut session, 200.0);
        assert_eq!(owned(&mut session, 9, &["x"]), ["a"], "{end}");
    }
}

#[test]
fn after_dead_workers_and_many_claims_each_key_runs_once() {
    for round in 0..6 {
        let (db, [mut main]) = Db::with_tasks(tasks(40));
        let dead = main.own_with("dead", 40, &["x"], "lease => '0.1 seconds'").unwrap();
        assert_eq!(dead.len(), KEYS);
        thread::sleep(std::time::Duration::from_millis(150));
        let mut grants = claims(&db, 1 + round, "");
        until("all keys run", || {
            grants.extend(main.own("w", 40, &["x"]).unwrap());
            (grants.len() >= KEYS).then_some(())
        });
        assert_eq!(grants.len(), KEYS, "{round}: {:?}", ids(&grants));
        grants.iter().for_each(|grant| main.complete(grant));
        assert_eq!(left(&mut main), 0, "{round}");
    }
}

#[test]
fn a_rider_whose_tries_are_used_up_is_aborted() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    session.insert(json!([{"id": "a", "action": "x", "merge_key": "k"}])).unwrap();
    session.own_one_with("x", "lease => '1 minute'");
    at(&mut session, 61.0);
    call(&mut session, "maintain()");
    call(&mut session, "set_action('x', max_tries => 1)");
    session.insert(json!([
        {"id": "b", "action": "x", "merge_key": "k", "priority": 9}, {"id": "after", "action": "y", "depends_on": ["a"]},
    ]))
    .unwrap();
    assert_eq!(owned(&mut session, 1, &["x"]), ["b"]);
    assert_eq!((session.state("a"), session.state("after")), ("aborted".to_owned(), "aborted".to_owned()));
}

/// Why: the end was put down to a deadline, whatever had ended the tries.
#[test]
fn the_end_of_such_a_rider_says_what_has_ended_its_last_try() {
    for (has, cause, status) in [
        ("lease => '1 minute'", "timeout", "the deadline passed on try 1, and there is no other"),
        ("lease => '1 day'", "tries", "all 1 tries are used up"),
    ] {
        let (_db, [mut session]) = Db::connected();
        at(&mut session, 0.0);
        session.insert(json!([{"id": "a", "action": "x", "merge_key": "k", "max_tries": 3}])).unwrap();
        let grant = session.own_one_with("x", has);
        at(&mut session, 61.0);
        if cause == "tries" {
            session.give_with("a", grant.token, "pending", "retry_after => '0'").unwrap();
        }
        call(&mut session, "maintain()");
        session.insert(json!([{"id": "b", "action": "x", "merge_key": "k", "priority": 9}])).unwrap();
        if cause == "tries" {
            call(&mut session, "update_tasks('{a}', max_tries => 1)");
        } else {
            session.run("UPDATE taskq.task SET max_tries = 1 WHERE id = 'a'");
        }
        assert_eq!(owned(&mut session, 1, &["x"]), ["b"]);
        let end: String = session.one("SELECT concat_ws(': ', cause, status) FROM taskq.dead_ends");
        assert_eq!(end, format!("{cause}: {status}"));
    }
}

#[test]
fn settled_tasks_with_the_key_cost_a_claim_nothing() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object(
             'id', 'old' || n, 'action', 'x', 'merge_key', 'k')) FROM generate_series(1, 20000) AS n))",
    );
    let leader = session.own_one("x");
    session.complete(&leader);
    assert_eq!(left(&mut session), 0);
    session.insert(tasks(1)).unwrap();
    session.insert(json!([{"id": "new", "action": "x", "merge_key": "k"}])).unwrap();
    let plan = |session: &mut Session| -> i64 {
        session.run("SELECT pg_stat_clear_snapshot()");
        session.one("SELECT pg_stat_get_xact_tuples_fetched('taskq.task'::regclass)")
    };
    session.run("BEGIN");
    let before = plan(&mut session);
    assert_eq!(owned(&mut session, 9, &["x"]).len(), 2);
    let read = plan(&mut session) - before;
    session.run("COMMIT");
    assert!(read < 200, "{read} rows of task were read for two grants");
}
