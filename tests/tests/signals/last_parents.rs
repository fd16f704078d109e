//! The last two parents of a child are returned in overlapping transactions. A queue that asks "is there still an
//! unfinished parent?" sees the other as unfinished in both, and strands the child for ever.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::commit_both;

/// Returns parents p and q in overlapping transactions, in an empty queue; hands back a third connection.
fn return_both(
    db: &Db,
    tasks: serde_json::Value,
    codes: [&'static str; 2],
    second_commits_first: bool,
) -> Session {
    db.clear();
    let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
    watcher.insert(tasks).unwrap();
    let held = watcher.own("w", 2, &["parent"]).unwrap();
    let (p, q) = (held[0].clone(), held[1].clone());
    first.run("BEGIN");
    first.give(&p.task_id, p.token, codes[0]).unwrap();
    second.run("BEGIN");
    let second = second.background(move |session| {
        session.give(&q.task_id, q.token, codes[1]).unwrap();
    });
    commit_both(first, second, second_commits_first, &mut watcher);
    watcher
}

fn parents_and(more: serde_json::Value) -> serde_json::Value {
    let mut tasks = vec![json!({"id": "p", "action": "parent"}), json!({"id": "q", "action": "parent"})];
    tasks.extend(more.as_array().unwrap().iter().cloned());
    json!(tasks)
}

const ORDERS: [bool; 2] = [false, true];

#[test]
fn the_child_is_free_in_either_order_of_commit() {
    let db = Db::new();
    for second_first in ORDERS {
        let tasks = parents_and(json!([{"id": "child", "action": "x", "depends_on": ["p", "q"]}]));
        let mut session = return_both(&db, tasks, ["completed", "completed"], second_first);
        assert_eq!(session.state("child"), "ready");
        let grant = session.own_one("x");
        assert_eq!((grant.task_id.as_str(), grant.num_failures), ("child", 0));
        let task = session.task("child").unwrap();
        assert_eq!((task.num_signals, task.total_dependencies), (2, 2));
    }
}

#[test]
fn the_failures_of_both_are_counted() {
    let db = Db::new();
    for second_first in ORDERS {
        for codes in [["aborted", "aborted"], ["aborted", "completed"], ["completed", "aborted"]] {
            let settled = |id: &str| json!({"id": id, "condition": "settled"});
            let tasks = parents_and(
                json!([{"id": "child", "action": "x", "depends_on": [settled("p"), settled("q")]}]),
            );
            let mut session = return_both(&db, tasks, codes, second_first);
            let expected = codes.iter().filter(|code| **code == "aborted").count();
            assert_eq!(session.own_one("x").num_failures, expected as i32);
        }
    }
}

#[test]
fn one_abort_of_two_aborts_the_child() {
    let db = Db::new();
    for second_first in ORDERS {
        for codes in [["aborted", "completed"], ["completed", "aborted"], ["aborted", "aborted"]] {
            let tasks = parents_and(json!([
                {"id": "child", "action": "x", "depends_on": ["p", "q"]},
                {"id": "handler", "action": "y", "depends_on": [{"id": "child", "condition": "aborted"}]},
            ]));
            let mut session = return_both(&db, tasks, codes, second_first);
            assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
            assert_eq!(session.own_one("y").task_id, "handler");
            assert_eq!(session.state("child"), "aborted");
        }
    }
}

#[test]
fn a_spontaneous_child_completes_and_frees_the_grandchild() {
    let db = Db::new();
    for second_first in ORDERS {
        let tasks = parents_and(json!([
            {"id": "child", "action": "s", "spontaneous": true, "depends_on": ["p", "q"]},
            {"id": "grandchild", "action": "x", "depends_on": ["child"]},
        ]));
        let mut session = return_both(&db, tasks, ["completed", "completed"], second_first);
        assert_eq!(session.wait("child", "10 seconds").unwrap().unwrap().status_code, "completed");
        assert_eq!(session.own_one("x").task_id, "grandchild");
    }
}

#[test]
fn a_grandchild_below_two_spontaneous_children_is_freed() {
    let db = Db::new();
    // Each parent completes one child; the two children are the last parents of the grandchild.
    for second_first in ORDERS {
        let tasks = parents_and(json!([
            {"id": "pc", "action": "s", "spontaneous": true, "depends_on": ["p"]},
            {"id": "qc", "action": "s", "spontaneous": true, "depends_on": ["q"]},
            {"id": "grandchild", "action": "x", "depends_on": ["pc", "qc"]},
            {"id": "end", "action": "s", "spontaneous": true, "depends_on": ["pc", "qc"]},
        ]));
        let mut session = return_both(&db, tasks, ["completed", "completed"], second_first);
        assert_eq!(session.own_one("x").task_id, "grandchild");
        assert_eq!(session.wait("end", "10 seconds").unwrap().unwrap().status_code, "completed");
    }
}

#[test]
fn a_waiting_worker_is_woken_by_the_later_commit() {
    let db = Db::new();
    for second_first in ORDERS {
        db.clear();
        let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher
            .insert(parents_and(json!([{"id": "child", "action": "x", "depends_on": ["p", "q"]}])))
            .unwrap();
        let held = watcher.own("w", 2, &["parent"]).unwrap();
        let (p, q) = (held[0].clone(), held[1].clone());
        let worker = db
            .connect()
            .background(|session| session.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap());
        watcher.until_asleep(worker.pid());
        first.run("BEGIN");
        first.complete(&p);
        second.run("BEGIN");
        let second = second.background(move |session| session.complete(&q));
        commit_both(first, second, second_first, &mut watcher);
        assert_eq!(worker.join().1[0].task_id, "child");
    }
}

#[test]
fn a_rolled_back_signal_does_not_count() {
    let db = Db::new();
    for rollback_second in [false, true] {
        db.clear();
        let (mut first, mut second, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher
            .insert(parents_and(json!([{"id": "child", "action": "x", "depends_on": ["p", "q"]}])))
            .unwrap();
        let held = watcher.own("w", 2, &["parent"]).unwrap();
        let (p, q) = (held[0].clone(), held[1].clone());
        first.run("BEGIN");
        first.complete(&p);
        second.run("BEGIN");
        let call = second.background(move |session| session.complete(&q));
        call.settle_down(&mut watcher);
        first.run(if rollback_second { "COMMIT" } else { "ROLLBACK" });
        let (mut second, ()) = call.join();
        second.run(if rollback_second { "ROLLBACK" } else { "COMMIT" });
        assert!(watcher.own("w", 1, &["x"]).unwrap().is_empty());
        assert_eq!(watcher.task("child").unwrap().num_signals, 1);
        let undone = if rollback_second { &held[1] } else { &held[0] };
        watcher.complete(undone);
        assert_eq!(watcher.own_one("x").task_id, "child");
    }
}
