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
    let (_db, [mut open, mut other, mut watcher]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]));
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

/// A place is kept by another row: a claim that moved its marks while the update was open must not have moved them past
/// it.
#[test]
fn marks_do_not_pass_what_keeps_its_place() {
    let (_db, [mut open, mut claimer]) = Db::connected();
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
fn under_repeatable_read_the_latest_state_is_changed() {
    let (_db, [mut session, mut other]) = Db::connected();
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM taskq.tasks");
    other.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    session.run("SELECT taskq.update_tasks('{a}', priority => 7, body => 'new')");
    session.run("COMMIT");
    assert_eq!(other.own_one("x").body.as_deref(), Some("new"));
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
