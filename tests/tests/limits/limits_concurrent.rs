//! `max_concurrency` under eight sessions that return, give back, abandon, cancel and roll back at random.
//!
//! Why: what is right step by step may race. Two judges: a ledger of the sessions, which counts a task from after its
//! grant to before its return and so never more than are held; and an observer that counts in one snapshot what is in
//! progress and not overdue. On wrong code one of them sees more than the limit, or a place is missing at the end.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Session, sqlstate, until};

use crate::{call, tasks};

const LIMIT: i32 = 3;
const SESSIONS: u64 = 8;
const ROUNDS: usize = 120;

/// What is held and not overdue, in one snapshot.
const HELD: &str = "SELECT count(*)::integer FROM taskq.tasks WHERE action = 'x' AND state = 'in-progress' \
                    AND (action_deadline IS NULL OR action_deadline > taskq.clock())";

/// When all others have ended: abandoned leases are over in a moment, and one that was met while another session had
/// its task locked is looked at again a second later.
fn all_places_come_free(main: &mut Session, limit: i32) {
    until("nothing is held", || (main.one::<i32>(HELD) == 0).then_some(()));
    let mut held = 0;
    until("all places are free", || {
        held += main.own("end", 100, &["x"]).unwrap().len() as i32;
        assert!(held <= limit, "{held} are held of {limit}");
        (held == limit).then_some(())
    });
}

fn worker(session: &mut Session, seed: u64, ledger: &AtomicI32, limit: i32) {
    let mut random = Random::new(seed);
    for _ in 0..ROUNDS {
        let rolled_back = random.chance(15);
        if rolled_back {
            session.run("BEGIN");
        }
        let abandoned = random.chance(15);
        let lease = if abandoned { "lease => '10 milliseconds'" } else { "lease => NULL" };
        let wanted = 1 + random.below(3) as i32;
        let grants = session.own_with("w", wanted, &["x", "y"], lease).unwrap();
        let limited: Vec<_> = grants.iter().filter(|g| g.action == "x").collect();
        if rolled_back {
            session.run("ROLLBACK");
            continue;
        }
        if abandoned {
            for grant in grants.iter().filter(|g| g.action == "y") {
                session.give(&grant.task_id, grant.token, "pending").ok();
            }
            continue;
        }
        let held = ledger.fetch_add(limited.len() as i32, Ordering::SeqCst) + limited.len() as i32;
        assert!(held <= limit, "{held} are held of {limit}");
        for grant in &grants {
            if grant.action == "x" {
                if random.chance(10) {
                    session.run("BEGIN");
                    session.give(&grant.task_id, grant.token, "completed").unwrap();
                    session.run("ROLLBACK");
                }
                ledger.fetch_sub(1, Ordering::SeqCst);
            }
            match random.below(10) {
                0 => assert_eq!(session.cancel(&[&grant.task_id]).unwrap(), 1),
                1 | 2 => drop(session.give(&grant.task_id, grant.token, "aborted").unwrap()),
                3..=5 => drop(session.give(&grant.task_id, grant.token, "pending").unwrap()),
                _ => session.complete(grant),
            }
        }
    }
}

#[test]
fn eight_sessions_never_hold_more_than_the_limit_and_leak_nothing() {
    let db = Db::new();
    let mut main = db.connect();
    call(&mut main, &format!("set_action('x', max_concurrency => {LIMIT})"));
    main.insert(tasks("x", 1500)).unwrap();
    main.insert(tasks("y", 500)).unwrap();
    let ledger = AtomicI32::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..SESSIONS)
            .map(|seed| {
                let (mut session, ledger) = (db.connect(), &ledger);
                scope.spawn(move || worker(&mut session, seed, ledger, LIMIT))
            })
            .collect();
        let observer = scope.spawn(|| {
            let mut session = db.connect();
            let mut most = 0;
            while !over.load(Ordering::SeqCst) {
                most = most.max(session.one::<i32>(HELD));
            }
            most
        });
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        over.store(true, Ordering::SeqCst);
        let most = observer.join().unwrap();
        results.into_iter().for_each(|result| result.expect("a worker"));
        assert!(most <= LIMIT, "an observer saw {most} of {LIMIT}");
        assert!(most > 0, "the observer saw something at all");
    });
    all_places_come_free(&mut main, LIMIT);
}

#[test]
fn the_limit_holds_while_another_session_raises_and_lowers_it() {
    let db = Db::new();
    let mut main = db.connect();
    call(&mut main, "set_action('x', max_concurrency => 4)");
    main.insert(tasks("x", 3000)).unwrap();
    let ledger = AtomicI32::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|seed| {
                let (mut session, ledger) = (db.connect(), &ledger);
                // Never more than the highest limit that there ever was.
                scope.spawn(move || worker(&mut session, 50 + seed, ledger, 4))
            })
            .collect();
        let setter = scope.spawn(|| {
            let mut session = db.connect();
            let mut random = Random::new(99);
            while !over.load(Ordering::SeqCst) {
                let limit = random.below(5);
                call(&mut session, &format!("set_action('x', max_concurrency => {limit})"));
            }
            call(&mut session, "set_action('x', max_concurrency => 2)");
        });
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        over.store(true, Ordering::SeqCst);
        setter.join().unwrap();
        results.into_iter().for_each(|result| result.expect("a worker"));
    });
    all_places_come_free(&mut main, 2);
}

#[test]
fn a_late_extension_against_claims_keeps_the_limit() {
    let db = Db::new();
    let mut main = db.connect();
    call(&mut main, "set_action('x', max_concurrency => 1)");
    late_extensions_keep_a_limit_of_one(&db, |id| json!({"id": id, "action": "x"}), 80);
}

/// Four sessions let the deadline pass and extend all the same. The limit, of which the tasks are that `task` makes, has to
/// hold, and its place to be free at the end.
pub(crate) fn late_extensions_keep_a_limit_of_one(db: &Db, task: impl Fn(&str) -> Value, rounds: usize) {
    let mut main = db.connect();
    main.insert((0..40).map(|i| task(&format!("t{i}"))).collect()).unwrap();
    let ledger = AtomicI32::new(0);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (mut session, ledger) = (db.connect(), &ledger);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..rounds {
                    let grants = session.own_with("w", 1, &["x"], "lease => '1 millisecond'").unwrap();
                    let Some(grant) = grants.first() else { continue };
                    // The deadline passes while others look for work.
                    session.own("w", 0, &["x"]).unwrap();
                    let held = session.extend("w", &[(&grant.task_id, grant.token)], "1 hour").unwrap()[0].1;
                    if !held {
                        continue;
                    }
                    let now = ledger.fetch_add(1, Ordering::SeqCst) + 1;
                    assert_eq!(now, 1, "held by two at once");
                    ledger.fetch_sub(1, Ordering::SeqCst);
                    let code = if random.chance(50) { "pending" } else { "completed" };
                    let answer = session.give(&grant.task_id, grant.token, code);
                    assert!(
                        answer.is_ok(),
                        "extended, so held: {:?}",
                        answer.err().map(|e| sqlstate(&e).to_owned())
                    );
                }
            });
        }
    });
    let mut last = task("last");
    last["priority"] = json!(9);
    main.insert(json!([last])).unwrap();
    let end = until("the place is free", || main.own("end", 1, &["x"]).unwrap().pop());
    assert_eq!(end.task_id, "last");
}
