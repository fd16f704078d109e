//! Low-water marks rest on what the sequence of positions says. Whatever a look can see of what happens to that, to what a call
//! asks for, or to the server, nothing is lost below a mark: these are the schedules in which something was.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use taskq_tests::{Cluster, Db, Progress, Session, until};

fn tasks(count: usize) -> Value {
    (0..count).map(|_| json!({"action": "x"})).collect()
}

/// Owns and completes so many tasks, one by one: each time the backend looks, and may move its marks.
fn perform(session: &mut Session, count: usize) {
    for _ in 0..count {
        session.perform("x", "completed");
    }
}

/// Looks that find nothing, until no session that runs beside this test keeps the marks from moving.
fn look(session: &mut Session) {
    for _ in 0..30 {
        assert_eq!(session.own("w", 1, &["x"]).unwrap().len(), 0);
        thread::sleep(Duration::from_millis(3));
    }
}

/// A call looks after the marks of 256 actions. What an earlier call has seen of the others says nothing now.
#[test]
fn actions_beyond_those_a_call_looks_after_are_walked_from_their_marks() {
    let (_db, [mut session, mut others, mut late]) = Db::connected();
    let names: Vec<String> = (0..300).map(|n| format!("a{n}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    others.insert(names.iter().map(|name| json!({"action": name})).collect()).unwrap();
    let last: String = others.one("SELECT name FROM taskq.action ORDER BY action_no DESC LIMIT 1");
    let last = last.as_str();
    session.perform(last, "completed");
    late.run("BEGIN");
    late.insert(json!([{"id": "late", "action": last, "priority": 0}])).unwrap();
    // Behind the open one: a look of the short list has seen it, and then nothing.
    others.insert(json!([{"action": last}])).unwrap();
    session.perform(last, "completed");
    assert_eq!(session.own("w", 1, &[last]).unwrap().len(), 0);
    late.run("COMMIT");
    let found: Vec<String> =
        session.own("w", 1_000, &all).unwrap().into_iter().map(|grant| grant.task_id).collect();
    assert!(found.contains(&"late".to_owned()), "one of {}", found.len());
}

/// `last_value` is 1 before the first position is taken and after it.
#[test]
fn the_first_position_of_a_sequence_is_not_passed_before_it_is_taken() {
    let (_db, [mut session, mut others, mut first]) = Db::connected();
    // The action has its number, which would be the first position otherwise.
    others.insert(json!([{"id": "gone", "action": "x"}])).unwrap();
    others.delete(&["gone"]).unwrap();
    others.run("ALTER SEQUENCE taskq.position_seq RESTART");
    look(&mut session);
    first.run("BEGIN");
    first.insert(json!([{"id": "first", "action": "x"}])).unwrap();
    others.insert(tasks(5)).unwrap();
    perform(&mut session, 5);
    look(&mut session);
    first.run("COMMIT");
    assert_eq!(first.one::<i64>("SELECT position FROM taskq.run"), 1);
    assert_eq!(session.own_one("x").task_id, "first");
}

/// An insertion has taken its position, and waits for its table: it has a transaction id by then, which keeps the marks of
/// others before that position.
#[test]
fn a_position_is_not_passed_while_its_insertion_waits() {
    let (db, [mut session, mut locker]) = Db::with_tasks(tasks(6));
    perform(&mut session, 3);
    locker.run("BEGIN; LOCK TABLE taskq.task IN SHARE MODE");
    let late =
        db.connect().background(|session| session.insert(json!([{"id": "late", "action": "x"}])).unwrap());
    assert_eq!(late.settle_down(&mut session), Progress::Blocked);
    perform(&mut session, 3);
    look(&mut session);
    locker.run("COMMIT");
    late.join();
    assert_eq!(session.own_one("x").task_id, "late");
}

/// As a careless administrator does, under sessions that go on: each that looks before positions are where they were knows
/// nothing then, and each does that after RESTART.
#[test]
fn a_sequence_that_is_set_back_hides_nothing() {
    let db = Db::new();
    for (way, looks) in [
        ("SELECT setval('taskq.position_seq', 1, false)", true),
        ("ALTER SEQUENCE taskq.position_seq RESTART", false),
    ] {
        let (mut session, mut others) = (db.connect(), db.connect());
        others.insert(tasks(20)).unwrap();
        perform(&mut session, 20);
        look(&mut session);
        others.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
        others.run(way);
        if looks {
            assert_eq!(session.own("w", 1, &["x"]).unwrap().len(), 0);
        }
        others.insert(tasks(40)).unwrap();
        assert_eq!(session.own("w", 100, &["x"]).unwrap().len(), 40, "after {way}");
        db.clear();
    }
}

/// No look can see that rows were copied in below the marks.
#[test]
fn what_is_copied_in_below_the_marks_is_found_by_a_session_that_connects_anew() {
    let (db, [mut session, mut others]) = Db::connected();
    others.insert(json!([{"id": "kept", "action": "x"}])).unwrap();
    others.run("CREATE TABLE kept AS SELECT * FROM taskq.run");
    others.insert(tasks(20)).unwrap();
    perform(&mut session, 21);
    look(&mut session);
    others.run("DELETE FROM taskq.settled WHERE task_no IN (SELECT task_no FROM kept)");
    others.run("INSERT INTO taskq.run SELECT * FROM kept");
    assert_eq!(db.connect().own_one("x").task_id, "kept");
}

/// What a standby knows of the sequence is ahead of what the transactions of the primary have taken, and it knows of
/// their ids late. A session that has looked there, and lives on when the standby becomes the primary, knows nothing.
#[test]
fn what_a_standby_says_of_the_positions_is_not_believed_after_its_promotion() {
    let settings = ["max_connections=20", "max_prepared_transactions=5"];
    let tmp = env!("CARGO_TARGET_TMPDIR");
    let primary = Cluster::start(tmp, "marks-primary", &settings);
    let standby = Cluster::standby(tmp, "marks-standby", &primary, &settings);
    let (mut session, mut worker) = (primary.connect(), standby.connect());
    // The first position after a checkpoint writes down the next 32, too.
    session.insert(tasks(1)).unwrap();
    let catch_up = |primary: &mut Session, standby: &mut Session| {
        let end: String = primary.one("SELECT pg_current_wal_flush_lsn()::text");
        until("the standby has replayed what there is", || {
            standby.one::<bool>(&format!("SELECT pg_last_wal_replay_lsn() >= '{end}'")).then_some(())
        });
    };
    catch_up(&mut session, &mut worker);
    let refused = worker.own("w", 1, &["x"]).unwrap_err();
    assert!(format!("{refused:?}").contains("25006"), "a standby grants nothing: {refused:?}");
    session.run("BEGIN");
    session.insert(json!([{"id": "late", "action": "x"}])).unwrap();
    session.run("PREPARE TRANSACTION 'late'");
    catch_up(&mut session, &mut worker);
    primary.kill();
    assert!(worker.one::<bool>("SELECT pg_promote()"));
    let mut others = standby.connect();
    others.insert(tasks(5)).unwrap();
    perform(&mut worker, 6);
    look(&mut worker);
    others.run("COMMIT PREPARED 'late'");
    assert_eq!(worker.own_one("x").task_id, "late");
    assert_eq!(worker.broken(), Vec::<String>::new());
}
