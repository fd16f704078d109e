//! Of much that will be due a sleeper wakes for the first.
//!
//! Why: how long it sleeps is asked once, before it falls asleep; of what is nearer than that it hears only if it is committed later.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Db, let_databases_stay};

/// Far, near and in between, in this order.
const TIMES: [&str; 3] = ["25 seconds", "1.5 seconds", "20 seconds"];

/// A call that sleeps for tasks of x comes back with this one, in time.
fn comes_in_time(db: &Db, task_id: &str) {
    let_databases_stay();
    let began = Instant::now();
    let grants = db.connect().own_with("w", 5, &["x"], "wait => '15 seconds'").unwrap();
    assert_eq!(grants.iter().map(|grant| grant.task_id.as_str()).collect::<Vec<_>>(), [task_id]);
    assert!(began.elapsed() < Duration::from_secs(6), "it slept for {:?}", began.elapsed());
}

#[test]
fn of_tasks_with_a_delay() {
    let (db, [mut session]) = Db::connected();
    for (n, time) in TIMES.iter().enumerate() {
        session.insert(json!([{"id": format!("task {n}"), "action": "x", "delay": time}])).unwrap();
    }
    comes_in_time(&db, "task 1");
}

#[test]
fn of_deadlines() {
    let (db, [mut session]) = Db::connected();
    for (n, time) in TIMES.iter().enumerate() {
        session.insert(json!([{"id": format!("task {n}"), "action": "x"}])).unwrap();
        let grant = session.own_one_with("x", &format!("lease => '{time}'"));
        assert_eq!(grant.task_id, format!("task {n}"));
    }
    comes_in_time(&db, "task 1");
}

#[test]
fn of_schedules() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT taskq.schedule('year', '0 0 1 1 *', '{\"action\": \"x\"}');
         SELECT taskq.schedule('second', '*/2 * * * * *', '{\"action\": \"x\"}');
         SELECT taskq.schedule('month', '0 0 1 * *', '{\"action\": \"x\"}')",
    );
    let_databases_stay();
    let began = Instant::now();
    let grants = session.own_with("w", 1, &["x"], "wait => '15 seconds'").unwrap();
    assert!(grants[0].task_id.starts_with("second@"));
    assert!(began.elapsed() < Duration::from_secs(6), "it slept for {:?}", began.elapsed());
    session.run("SELECT taskq.unschedule('second')");
}
