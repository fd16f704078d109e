//! `wait_for_task` answers at once when it can, sleeps when it cannot, is woken by the commit that settles the task,
//! and leaves nothing behind however it ends.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Background, Db, Session, Settled, refused, sqlstate};

fn one_task(db: &Db) -> Session {
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    session
}

/// A call that waits for task a; asleep when this returns.
fn sleeper(db: &Db, watcher: &mut Session) -> Background<Result<Option<Settled>, postgres::Error>> {
    let call = db.connect().background(|session| session.wait("a", "60 seconds"));
    watcher.until_asleep(call.pid());
    call
}

#[test]
fn a_settled_task_is_answered_at_once() {
    let db = Db::new();
    let mut session = one_task(&db);
    let grant = session.own_one("x");
    session.give_with("a", grant.token, "completed", "status => 'fine', result => '{\"n\": 1}'").unwrap();
    let expected = Settled {
        task_id: "a".to_owned(),
        status_code: "completed".to_owned(),
        status: Some("fine".to_owned()),
        result: Some(json!({"n": 1})),
    };
    assert_eq!(session.wait("a", "60 seconds").unwrap(), Some(expected.clone()));
    assert_eq!(session.wait("a", "0").unwrap(), Some(expected));
    assert!(session.one::<bool>("SELECT settled_at <= clock_timestamp() FROM taskq.wait_for_task('a')"));
}

#[test]
fn a_commit_elsewhere_ends_the_sleep() {
    let db = Db::new();
    let mut session = one_task(&db);
    let call = sleeper(&db, &mut session);
    let grant = session.own_one("x");
    session.give("a", grant.token, "pending").unwrap();
    let grant = session.own_one("x");
    session.until_asleep(call.pid());
    session.give_with("a", grant.token, "aborted", "status => 'broken', result => '[1]'").unwrap();
    let settled = call.join().1.unwrap().unwrap();
    assert_eq!(
        (settled.status_code.as_str(), settled.status.as_deref(), settled.result),
        ("aborted", Some("broken"), Some(json!([1])))
    );
}

#[test]
fn a_return_that_rolls_back_ends_no_waiting_call() {
    let db = Db::new();
    let (mut session, mut watcher) = (one_task(&db), db.connect());
    let call = sleeper(&db, &mut watcher);
    let grant = session.own_one("x");
    session.run("BEGIN");
    session.complete(&grant);
    session.run("ROLLBACK");
    watcher.until_asleep(call.pid());
    session.give("a", grant.token, "aborted").unwrap();
    assert_eq!(call.join().1.unwrap().unwrap().status_code, "aborted");
}

#[test]
fn a_time_out_gives_no_row() {
    let db = Db::new();
    let mut session = one_task(&db);
    assert_eq!(session.wait("a", "0").unwrap(), None);
    let start = Instant::now();
    assert_eq!(session.wait("a", "0.2 seconds").unwrap(), None);
    assert!(start.elapsed() >= Duration::from_millis(190), "it does sleep");
}

#[test]
fn bad_arguments_are_refused() {
    let db = Db::new();
    let mut session = one_task(&db);
    refused(&mut session, "22004", "", "SELECT * FROM taskq.wait_for_task('a', NULL)", &[]);
    refused(&mut session, "22004", "", "SELECT * FROM taskq.wait_for_task(NULL, '1 second')", &[]);
    refused(&mut session, "22023", "", "SELECT * FROM taskq.wait_for_task('a', '-0.001 seconds')", &[]);
    refused(&mut session, "TQ003", "absent", "SELECT * FROM taskq.wait_for_task('absent', '1 second')", &[]);
}

#[test]
fn a_deleted_task_ends_the_sleep() {
    let db = Db::new();
    let mut session = one_task(&db);
    let call = sleeper(&db, &mut session);
    session.delete(&["a"]).unwrap();
    // It will never settle; the caller hears so, or that there is no such task.
    match call.join().1 {
        Ok(answer) => assert_eq!(answer.map(|settled| settled.status_code), Some("aborted".to_owned())),
        Err(error) => assert_eq!(sqlstate(&error), "TQ003"),
    }
}

#[test]
fn waiting_in_a_transaction_sees_what_others_commit_meanwhile() {
    let db = Db::new();
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        db.clear();
        let mut session = one_task(&db);
        let mut waiter = db.connect();
        waiter.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM taskq.tasks"));
        let call = waiter.background(|session| session.wait("a", "60 seconds"));
        session.until_asleep(call.pid());
        session.perform("x", "completed");
        let answer = call.join().1;
        match answer {
            Ok(settled) => assert_eq!(settled.unwrap().status_code, "completed"),
            Err(error) => assert_eq!(sqlstate(&error), "40001", "{isolation}"),
        }
    }
}
