//! Limits of an action and of groups under eight sessions that return, give back, abandon, cancel and roll back at random.
//!
//! Why: the places of groups are made while they are needed, by sessions that race for it. Two judges: a ledger of the
//! sessions for each group, which counts a task from after its grant to before its return and so never more than are held;
//! and an observer that counts in one snapshot. On wrong code one of them sees more than the limit, a place is missing at
//! the end, or a session waits for another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Progress, Session, sqlstate, until};

use crate::{call, owned};

const GROUPS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// The limit per group of action `x`; group `a` may have one task less in progress, over all actions.
const PER_GROUP: i32 = 2;
const SESSIONS: u64 = 8;
/// How many of action `x` may be in progress over all groups.
const OF_ACTION: i32 = 7;

/// What is held and not overdue of the action, of each group in it (the most of it), and of the group with a limit of its own, in one
/// snapshot.
const HELD: &str = "SELECT ARRAY[COALESCE(sum(n) FILTER (WHERE action = 'x'), 0), COALESCE(max(n) FILTER (WHERE action = 'x'), 0), \
                                 COALESCE(sum(n) FILTER (WHERE group_id = 'a'), 0)]::integer[] \
      FROM (SELECT action, group_id, count(*) AS n FROM taskq.tasks \
             WHERE state = 'in-progress' AND group_id IS NOT NULL \
               AND (action_deadline IS NULL OR action_deadline > taskq.clock()) GROUP BY action, group_id) AS g";

const PLACES_HELD: &str = "SELECT count(*) FROM taskq.slot WHERE task_no IS NOT NULL";

fn some_tasks(n: usize) -> Value {
    (0..n)
        .map(|i| {
            let action = if i % 5 == 0 { "y" } else { "x" };
            // The group is the first letter of the id.
            json!({"id": format!("{}{i}", GROUPS[i % 6]), "action": action, "group_id": GROUPS[i % 6], "priority": i % 2})
        })
        .collect()
}

struct Ledger(HashMap<&'static str, AtomicI32>);

impl Ledger {
    fn new() -> Self {
        let keys = ["x", "xa", "xb", "xc", "xd", "xe", "xf", "a"];
        Ledger(keys.into_iter().map(|key| (key, AtomicI32::new(0))).collect())
    }

    /// The limits that a task is subject to.
    fn keys(action: &str, id: &str) -> Vec<String> {
        let group = &id[..1];
        let mut keys = Vec::new();
        if action == "x" {
            keys.push("x".to_owned());
            keys.push(format!("x{group}"));
        }
        if group == "a" {
            keys.push("a".to_owned());
        }
        keys
    }

    fn begin(&self, action: &str, id: &str, most: i32) {
        for key in Self::keys(action, id) {
            let held = self.0[key.as_str()].fetch_add(1, Ordering::SeqCst) + 1;
            let most = match key.as_str() {
                "a" => 1,
                "x" => OF_ACTION,
                _ => most,
            };
            assert!(held <= most, "{held} are held of {key}");
        }
    }

    fn end(&self, action: &str, id: &str) {
        for key in Self::keys(action, id) {
            self.0[key.as_str()].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn worker(session: &mut Session, seed: u64, ledger: &Ledger, most: i32) {
    let mut random = Random::new(seed);
    for _ in 0..100 {
        let fate = random.below(10);
        if fate < 2 {
            session.run("BEGIN");
            if fate == 1 {
                session.run("SAVEPOINT s");
            }
        }
        let abandoned = fate == 2;
        let lease = if abandoned { "lease => '10 milliseconds'" } else { "lease => NULL" };
        let wanted = 1 + random.below(6) as i32;
        let grants = session.own_with("w", wanted, &["x", "y"], lease).unwrap();
        match fate {
            0 => session.run("ROLLBACK"),
            1 => {
                session.run("ROLLBACK TO s");
                session.own("w", 0, &["x"]).unwrap();
                session.run("COMMIT");
            }
            _ if abandoned => {}
            _ => {
                grants.iter().for_each(|g| ledger.begin(&g.action, &g.task_id, most));
                for grant in &grants {
                    ledger.end(&grant.action, &grant.task_id);
                    match random.below(8) {
                        0 => assert_eq!(session.cancel(&[&grant.task_id]).unwrap(), 1),
                        1..=3 => drop(session.give(&grant.task_id, grant.token, "pending").unwrap()),
                        _ => session.complete(grant),
                    }
                }
            }
        }
    }
}

fn run(db: &Db, most: i32, meanwhile: impl Fn(&mut Session, &mut Random) + Sync) {
    let ledger = Ledger::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..SESSIONS)
            .map(|seed| {
                let (mut session, ledger) = (db.connect(), &ledger);
                scope.spawn(move || worker(&mut session, seed, ledger, most))
            })
            .collect();
        let observer = scope.spawn(|| {
            let mut session = db.connect();
            let mut seen = Vec::new();
            while !over.load(Ordering::SeqCst) {
                seen.push(session.one::<Vec<i32>>(HELD));
            }
            seen
        });
        let setter = scope.spawn(|| {
            let (mut session, mut random) = (db.connect(), Random::new(99));
            while !over.load(Ordering::SeqCst) {
                meanwhile(&mut session, &mut random);
            }
        });
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        over.store(true, Ordering::SeqCst);
        let seen = observer.join().unwrap();
        setter.join().unwrap();
        results.into_iter().for_each(|result| result.expect("a worker"));
        assert!(seen.iter().all(|n| n[0] <= OF_ACTION && n[1] <= most && n[2] <= 1), "{seen:?}");
        assert!(seen.iter().any(|n| n[0] > 0), "the observer saw something at all");
    });
}

#[test]
fn eight_sessions_never_hold_more_of_a_group_than_its_limits_and_leak_nothing() {
    let (db, [mut main]) = Db::connected();
    call(
        &mut main,
        &format!("set_action('x', max_concurrency => {OF_ACTION}, max_per_group => {PER_GROUP})"),
    );
    call(&mut main, "set_group('a', max_concurrency => 1)");
    main.insert(some_tasks(4000)).unwrap();
    run(&db, PER_GROUP, |session, _| {
        session.one::<i64>("SELECT count(*) FROM taskq.check()");
    });
    until("nothing is held", || {
        main.own("w", 0, &["x", "y"]).unwrap();
        // What is overdue holds its place, too, until that is seen: a deadline is looked after a second later if
        // another session has the row just then.
        (main.one::<i64>(PLACES_HELD) == 0).then_some(())
    });
    let places = "SELECT count(*) FROM taskq.slot WHERE name = 'x' AND group_id <> ''";
    assert_eq!(main.one::<i64>(places), 6 * i64::from(PER_GROUP));
    assert_eq!(owned(&mut main, 100, &["x"]).len(), OF_ACTION as usize, "all places are free at the end");
}

#[test]
fn the_limits_hold_while_another_session_raises_and_lowers_them() {
    let (db, [mut main]) = Db::connected();
    // There is a limit of each kind before the first claim: what was granted without one stays held above it.
    call(&mut main, &format!("set_action('x', max_concurrency => {OF_ACTION}, max_per_group => 3)"));
    call(&mut main, "set_group('a', max_concurrency => 1)");
    main.insert(some_tasks(4000)).unwrap();
    // Never more than the highest limit that there ever was.
    run(&db, 3, |session, random| {
        let (all, of_group) = (random.below(8), 1 + random.below(3));
        call(session, &format!("set_action('x', max_concurrency => {all}, max_per_group => {of_group})"));
        call(session, &format!("set_group('a', max_concurrency => {})", random.below(2)));
        call(session, &format!("set_group('b', weight => {})", 1 + random.below(9)));
    });
    call(&mut main, "set_action('x', max_concurrency => 7, max_per_group => 2)");
    call(&mut main, "set_group('a', max_concurrency => 1)");
    until("nothing is held", || {
        main.own("w", 0, &["x", "y"]).unwrap();
        // What is overdue holds its place, too, until that is seen: a deadline is looked after a second later if
        // another session has the row just then.
        (main.one::<i64>(PLACES_HELD) == 0).then_some(())
    });
    assert_eq!(main.broken(), [""; 0]);
    let slots: Vec<String> = main.all("SELECT slot::text FROM taskq.slot ORDER BY 1");
    assert_eq!(owned(&mut main, 100, &["x"]).len(), 7, "{slots:#?}");
}

#[test]
fn a_late_extension_against_claims_keeps_the_limit() {
    let (db, [mut main]) = Db::connected();
    call(&mut main, "set_action('x', max_per_group => 1)");
    late_extensions_keep_a_limit_of_one(&db, |id| json!({"id": id, "action": "x", "group_id": "a"}), 60);
    let db = Db::new();
    call(&mut db.connect(), "set_action('x', max_concurrency => 1)");
    late_extensions_keep_a_limit_of_one(&db, |id| json!({"id": id, "action": "x"}), 60);
}

/// Four sessions let the deadline pass and extend all the same. The limit, of which the tasks are that `task` makes, has to
/// hold, and its place to be free at the end.
fn late_extensions_keep_a_limit_of_one(db: &Db, task: impl Fn(&str) -> Value, rounds: usize) {
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

#[test]
fn no_claim_waits_for_one_that_makes_places_nor_for_a_limit_being_set() {
    let (db, [mut open, mut watcher]) = Db::connected();
    call(&mut open, "set_action('x', max_per_group => 2)");
    for group in ["a", "b"] {
        let tasks =
            (0..4).map(|i| json!({"id": format!("{group}{i}"), "action": "x", "group_id": group})).collect();
        open.insert(tasks).unwrap();
    }
    for statement in [
        "SELECT taskq.own_tasks('open', 1, '{x}')",
        "SELECT taskq.set_action('x', max_per_group => 3)",
        "SELECT taskq.set_group('a', max_concurrency => 1)",
    ] {
        open.run("BEGIN");
        open.run(statement);
        let claim = db.connect().background(|s| owned(s, 9, &["x"]));
        assert_eq!(claim.settle_down(&mut watcher), Progress::Done, "{statement}");
        let (mut other, got) = claim.join();
        assert!(got.len() <= 4, "{statement}: {got:?}");
        open.run("ROLLBACK");
        let rest = owned(&mut other, 9, &["x"]);
        assert_eq!(got.len() + rest.len(), 4, "{statement}: what could not be had is there after it");
        call(&mut other, "reset_group('a')");
        call(&mut other, "reset_group('b')");
    }
}

#[test]
fn a_waiter_that_found_places_being_made_is_woken_by_the_commit() {
    let (db, [mut open, waiter]) = Db::connected();
    call(&mut open, "set_action('x', max_per_group => 2)");
    open.insert((0..4).map(|i| json!({"id": format!("t{i}"), "action": "x", "group_id": "a"})).collect())
        .unwrap();
    open.run("BEGIN");
    assert_eq!(owned(&mut open, 1, &["x"]), ["t0"]);
    let waiting = waiter.background(|s| crate::wait_for_one(s, "x").map(|grant| grant.task_id));
    db.connect().until_asleep(waiting.pid());
    open.run("COMMIT");
    assert_eq!(waiting.join().1.as_deref(), Some("t1"));
}
