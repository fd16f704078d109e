//! `own_tasks(wait => ...)`: sleeps until there is something to own, and is woken by the commit that brings it.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::Db;

#[test]
fn the_wake_up_comes_with_the_commit_and_not_with_a_rollback() {
    let (db, [mut session, mut watcher]) = Db::connected();
    let call = db.connect().background(|s| s.own_with("w", 5, &["x"], "wait => '60 seconds'").unwrap());
    watcher.until_asleep(call.pid());
    session.run("BEGIN");
    session.insert(json!([{"id": "never", "action": "x"}])).unwrap();
    session.run("ROLLBACK");
    session.run("BEGIN");
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    watcher.until_asleep(call.pid());
    session.run("COMMIT");
    assert_eq!(call.join().1[0].task_id, "a");
}

#[test]
fn a_time_out_gives_no_row_and_takes_about_that_long() {
    let (_db, [mut session]) = Db::connected();
    let start = Instant::now();
    assert!(session.own_with("w", 5, &["x"], "wait => '0.3 seconds'").unwrap().is_empty());
    assert!(start.elapsed() >= Duration::from_millis(290));
    assert!(session.own_with("w", 5, &["x"], "wait => '0'").unwrap().is_empty());
    assert!(session.own_with("w", 5, &["x"], "wait => NULL").unwrap().is_empty());
}
