//! Random work on many connections, with transactions that stay open for a while, or are rolled back, and upkeep that seals and
//! removes all the time; at each moment the numbers are those of the rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::random::Random;
use taskq_tests::{Db, Session};

use super::{COUNTED, ROWS, assert_counted, seal};

const ACTIONS: [&str; 3] = ["x", "y", "z"];

/// One random call; errors (deadlocks of two transactions with several calls, states that forbid it) are part of life.
fn call(session: &mut Session, random: &mut Random) -> Result<(), postgres::Error> {
    let action = *random.pick(&ACTIONS);
    let ids: Vec<String> = (0..1 + random.below(8)).map(|_| format!("t{}", random.below(400))).collect();
    match random.below(10) {
        0..=2 => {
            let tasks = ids
                .iter()
                .map(|id| {
                    let retention = if random.chance(50) { "1.5 seconds" } else { "1 day" };
                    let group = if random.chance(50) { "g" } else { "h" };
                    json!({"id": id, "action": action, "retention": retention, "group_id": group})
                })
                .collect();
            session.insert_with(tasks, "on_conflict => 'skip'").map(drop)
        }
        3..=6 => {
            let code = if random.chance(70) { "completed" } else { "aborted" };
            for grant in session.own("w", 1 + random.below(12) as i32, &ACTIONS)? {
                session.give(&grant.task_id, grant.token, code)?;
            }
            Ok(())
        }
        7 => session.execute("SELECT taskq.retry_tasks($1)", &[&ids]).map(drop),
        8 if random.chance(50) => session.execute("SELECT taskq.delete_tasks($1)", &[&ids]).map(drop),
        8 => session.execute("SELECT taskq.cancel_tasks($1)", &[&ids]).map(drop),
        _ => {
            let tasks = json!([{"id": ids[0], "action": action}]);
            session.replace(tasks).map(drop)
        }
    }
}

fn work(mut session: Session, seed: u64, over: &AtomicBool, calls: &AtomicU64) {
    let mut random = Random::new(seed);
    while !over.load(Ordering::Relaxed) {
        if random.chance(70) {
            drop(call(&mut session, &mut random));
            calls.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        session.run(if random.chance(20) { "BEGIN ISOLATION LEVEL REPEATABLE READ" } else { "BEGIN" });
        let mut failed = false;
        for _ in 0..1 + random.below(4) {
            let savepoint = random.chance(30);
            if savepoint && !failed {
                session.run("SAVEPOINT s");
            }
            failed |= call(&mut session, &mut random).is_err();
            calls.fetch_add(1, Ordering::Relaxed);
            if savepoint && (failed || random.chance(50)) {
                failed = session.batch_execute("ROLLBACK TO s").is_err();
            }
        }
        if random.chance(20) {
            std::thread::sleep(Duration::from_millis(random.below(1_500)));
        }
        drop(session.batch_execute(if random.chance(75) { "COMMIT" } else { "ROLLBACK" }));
    }
}

#[test]
fn under_any_load_the_numbers_are_those_of_the_rows() {
    let db = Db::new();
    let over = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for seed in 1..=6 {
        let (session, over, calls) = (db.connect(), over.clone(), calls.clone());
        threads.push(std::thread::spawn(move || work(session, seed, &over, &calls)));
    }
    // Two that seal, and remove what has expired.
    for _ in 0..2 {
        let (mut session, over) = (db.connect(), over.clone());
        threads.push(std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                // 40P01 if a worker with several calls in a transaction is in the way.
                drop(session.batch_execute("SELECT taskq.maintain(), pg_sleep(0.02)"));
            }
        }));
    }
    let (mut watcher, mut old) = (db.connect(), db.connect());
    let (start, mut looks, mut seen) = (Instant::now(), 0, 0i64);
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM taskq.task");
    while start.elapsed() < Duration::from_secs(12) {
        assert_counted(&mut watcher, "beside the work");
        if looks % 20 == 0 {
            // An older snapshot, asked now and then.
            let (counted, rows): (String, String) = (old.one(COUNTED), old.one(ROWS));
            assert_eq!(counted, rows, "in an older snapshot");
            if looks % 100 == 0 {
                old.run("COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ");
            }
        }
        seen = seen.max(watcher.one("SELECT coalesce(sum(abs(number)), 0)::bigint FROM taskq.end_tally"));
        looks += 1;
    }
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    old.run("COMMIT");
    assert!(seen > 50, "only {seen} tasks were ever in a tally");
    assert!(looks > 50 && calls.load(Ordering::Relaxed) > 200, "{looks} looks at {calls:?} calls");
    seal(&mut watcher);
    assert_counted(&mut watcher, "when all is over");
}
