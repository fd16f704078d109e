//! Updates among other calls: claims before, beside and after them, sleepers, dependencies that are attached, settled
//! parents, many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;
use taskq_tests::random::Random;
use taskq_tests::{Db, Progress};

#[test]
fn one_in_progress_is_refused_at_once_although_its_return_is_open() {
    let db = Db::new();
    let (mut open, mut other, mut watcher) = (db.connect(), db.connect(), db.connect());
    open.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    let grant = open.own_one("x");
    open.run("BEGIN");
    open.complete(&grant);
    other.run("SET statement_timeout = '20s'");
    let call =
        other.background(|s| s.query("SELECT taskq.update_tasks('{b,a}', priority => 1)", &[]).map(drop));
    assert_eq!(call.settle_down(&mut watcher), Progress::Done);
    let error = call.join().1.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "TQ005");
    open.run("COMMIT");
}

#[test]
fn an_open_grant_is_waited_for_and_then_in_the_way() {
    let db = Db::new();
    for (end, works) in [("COMMIT", false), ("ROLLBACK", true)] {
        let (mut open, other, mut watcher) = (db.connect(), db.connect(), db.connect());
        open.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        open.run("BEGIN");
        open.own_one("x");
        let call =
            other.background(|s| s.query("SELECT taskq.update_tasks('{a}', body => 'new')", &[]).map(drop));
        assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
        open.run(end);
        let (mut other, answer) = call.join();
        assert_eq!(answer.is_ok(), works, "after {end}: {answer:?}");
        if works {
            assert_eq!(other.own_one("x").body.as_deref(), Some("new"));
        }
        db.clear();
    }
}

#[test]
fn claims_pass_over_an_open_update_and_have_the_task_after_it() {
    let db = Db::new();
    let (mut open, mut other) = (db.connect(), db.connect());
    open.insert(json!([{"id": "a", "action": "x", "body": "old"}, {"id": "b", "action": "x"}])).unwrap();
    open.run("BEGIN");
    open.run("SELECT taskq.update_tasks('{a}', body => 'new')");
    assert_eq!(other.own_one("x").task_id, "b");
    assert!(other.own("w", 1, &["x"]).unwrap().is_empty());
    open.run("COMMIT");
    let grant = other.own_one("x");
    assert_eq!((grant.task_id.as_str(), grant.body.as_deref()), ("a", Some("new")));
}

/// A place is kept by another row: a claim that moved its marks while the update was open must not have moved them past
/// it.
#[test]
fn marks_do_not_pass_what_keeps_its_place() {
    let db = Db::new();
    let (mut open, mut claimer) = (db.connect(), db.connect());
    let tasks: Vec<_> = (0..20).map(|i| json!({"id": format!("{i:02}"), "action": "x"})).collect();
    open.insert(json!(tasks)).unwrap();
    for _ in 0..5 {
        claimer.perform("x", "completed");
    }
    open.run("BEGIN");
    open.run("SELECT taskq.update_tasks('{05,06}', body => 'new')");
    for _ in 0..10 {
        claimer.perform("x", "completed");
    }
    open.run("COMMIT");
    let left: Vec<String> = (0..5).map(|_| claimer.perform("x", "completed")).collect();
    assert_eq!(left, ["05", "06", "17", "18", "19"]);
}

#[test]
fn an_update_that_makes_a_task_ready_wakes_a_waiting_call() {
    let db = Db::new();
    let (mut session, sleeper) = (db.connect(), db.connect());
    session
        .insert(json!([{"id": "p", "action": "p"}, {"id": "a", "action": "x", "delay": "1 hour"},
                       {"id": "b", "action": "y", "depends_on": ["p"], "delay": "1 hour"}]))
        .unwrap();
    let call = sleeper.background(|s| s.own_with("w", 1, &["x", "y"], "wait => '60 seconds'").unwrap());
    session.until_asleep(call.pid());
    session.run("SELECT taskq.update_tasks('{a}', delay => '0')");
    let (sleeper, grants) = call.join();
    assert_eq!(grants[0].task_id, "a");
    let call = sleeper.background(|s| s.own_with("w", 1, &["y"], "wait => '60 seconds'").unwrap());
    session.until_asleep(call.pid());
    session.run("SELECT taskq.update_tasks('{b}', delay => '0')");
    session.perform("p", "completed");
    assert_eq!(call.join().1[0].task_id, "b");
}

/// It looked while the row was locked, found nothing, and sleeps: the end of the update has to wake it.
#[test]
fn a_call_that_fell_asleep_beside_an_open_update_wakes_at_its_end() {
    let db = Db::new();
    for end in ["COMMIT", "ROLLBACK"] {
        let (mut open, sleeper) = (db.connect(), db.connect());
        open.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        open.run("BEGIN");
        open.run("SELECT taskq.update_tasks('{a}', body => 'new')");
        let call = sleeper.background(|s| s.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap());
        db.connect().until_asleep(call.pid());
        open.run(end);
        assert_eq!(call.join().1.len(), 1, "after {end}");
        db.clear();
    }
}

#[test]
fn a_savepoint_that_is_rolled_back_leaves_all_as_it_was() {
    let db = Db::new();
    let (mut session, mut other) = (db.connect(), db.connect());
    session.insert(json!([{"id": "a", "action": "x", "body": "old"}, {"id": "b", "action": "x"}])).unwrap();
    session.run("BEGIN; SAVEPOINT s");
    session.run("SELECT taskq.update_tasks('{a}', body => 'new', priority => 7)");
    session.run("ROLLBACK TO s; COMMIT");
    let grant = other.own_one("x");
    assert_eq!((grant.task_id.as_str(), grant.body.as_deref()), ("a", Some("old")));
}

#[test]
fn under_repeatable_read_the_latest_state_is_changed() {
    let db = Db::new();
    let (mut session, mut other) = (db.connect(), db.connect());
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM taskq.tasks");
    other.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    session.run("SELECT taskq.update_tasks('{a}', priority => 7, body => 'new')");
    session.run("COMMIT");
    assert_eq!(other.own_one("x").body.as_deref(), Some("new"));
}

/// An inserter attaches a dependency to a task while that is updated: neither is lost.
#[test]
fn a_dependency_that_is_attached_meanwhile_counts() {
    let db = Db::new();
    for change in ["body => 'new'", "priority => 3", "delay => '1 hour'"] {
        let (mut open, other, mut watcher) = (db.connect(), db.connect(), db.connect());
        open.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        open.run("BEGIN");
        open.run(&format!("SELECT taskq.update_tasks('{{a}}', {change})"));
        let call = other
            .background(|s| s.insert(json!([{"id": "b", "action": "y", "depends_on": ["a"]}])).map(drop));
        assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
        open.run("COMMIT");
        call.join().1.unwrap();
        assert_eq!(watcher.state("b"), "blocked");
        watcher.run("SELECT taskq.update_tasks('{a}', delay => '0')");
        watcher.perform("x", "completed");
        assert_eq!(watcher.state("b"), "ready", "after {change}");
        db.clear();
    }
}

/// A parent that settles beside an open update of its dependent defers its signal; the update's end counts it.
#[test]
fn a_signal_that_meets_an_open_update_is_not_lost() {
    let db = Db::new();
    let (mut open, mut other) = (db.connect(), db.connect());
    open.insert(json!([{"id": "p", "action": "p"}, {"id": "d", "action": "d", "depends_on": ["p"]}]))
        .unwrap();
    open.run("BEGIN");
    open.run("SELECT taskq.update_tasks('{d}', body => 'new', priority => 2)");
    other.perform("p", "completed");
    open.run("COMMIT");
    let grant = other.own_one("d");
    assert_eq!(grant.body.as_deref(), Some("new"));
}

/// Workers claim all the while others change body and priority. What a worker is given must be what the last update
/// committed before the grant has set: an update that succeeded is never performed as it was before.
#[test]
fn no_worker_performs_what_was_there_before_an_update() {
    let db = Db::new();
    let over = Arc::new(AtomicBool::new(false));
    let mut session = db.connect();
    session.run("SET taskq.max_tries = -1");
    let tasks: Vec<_> = (0..40).map(|i| json!({"id": format!("t{i}"), "action": "x", "body": "0"})).collect();
    session.insert(json!(tasks)).unwrap();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let (mut session, over) = (db.connect(), over.clone());
            thread::spawn(move || {
                session.run("SET taskq.max_tries = -1");
                let mut stale = 0;
                while !over.load(Ordering::Relaxed) {
                    for grant in session.own("w", 2, &["x"]).unwrap() {
                        // No other session changes it while it is ours: what is stored is what the last update has set.
                        let stored: String = session
                            .one(&format!("SELECT body FROM taskq.tasks WHERE id = '{}'", grant.task_id));
                        stale += i32::from(Some(stored) != grant.body);
                        session.give(&grant.task_id, grant.token, "pending").unwrap();
                    }
                }
                stale
            })
        })
        .collect();
    let mut random = Random::new(11);
    let mut done = 0;
    for round in 1..=1_500 {
        let id = random.below(40);
        let change = *random.pick(&["", ", priority => 1", ", priority => 0", ", delay => '0'"]);
        let query = format!("SELECT taskq.update_tasks('{{t{id}}}', body => '{round}'{change})");
        match session.query(&query, &[]) {
            Ok(_) => done += 1,
            Err(error) => assert_eq!(error.code().unwrap().code(), "TQ005", "{error:?}"),
        }
    }
    over.store(true, Ordering::Relaxed);
    let stale: i32 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert!(done > 300, "only {done} updates worked");
    assert_eq!(stale, 0, "grants with an old body");
    assert_eq!(session.own("w", 100, &["x"]).unwrap().len(), 40, "all are there");
}

/// Calls that name the same tasks in different orders, of every kind: none ends in a deadlock.
#[test]
fn updates_and_other_calls_on_the_same_tasks_do_not_deadlock() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks: Vec<_> = (0..12)
        .map(|i| {
            let mut task = json!({"id": format!("t{i}"), "action": "x"});
            match i % 4 {
                1 => task["delay"] = json!("1 hour"),
                2 => task["depends_on"] = json!([format!("t{}", i - 2)]),
                3 => task["group_id"] = json!("g"),
                _ => {}
            }
            task
        })
        .collect();
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let (mut session, tasks) = (db.connect(), tasks.clone());
            thread::spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..150 {
                    let mut ids: Vec<String> = (0..4).map(|_| format!("t{}", random.below(12))).collect();
                    ids.dedup();
                    let answer = match random.below(6) {
                        0 => session.replace(json!(tasks.clone())).map(drop),
                        1 => session.cancel(&ids.iter().map(String::as_str).collect::<Vec<_>>()).map(drop),
                        2 => session.delete(&ids.iter().map(String::as_str).collect::<Vec<_>>()).map(drop),
                        n => {
                            let change =
                                ["priority => 2", "delay => '0'", "delay => '1 hour'"][n as usize - 3];
                            session
                                .query(&format!("SELECT taskq.update_tasks($1, {change})"), &[&ids])
                                .map(drop)
                        }
                    };
                    if let Err(error) = answer {
                        let code = error.code().unwrap().code();
                        assert!(["TQ003", "TQ005", "TQ002"].contains(&code), "{error:?}");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(session.broken(), Vec::<String>::new());
}
