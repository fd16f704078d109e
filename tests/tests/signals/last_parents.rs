//! The last two parents of a child are returned in overlapping transactions. A queue that asks "is there still an
//! unfinished parent?" sees the other as unfinished in both, and strands the child for ever.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::commit_both;

/// Returns two parents in overlapping transactions, of which the second commits first if so wished, in an empty queue.
fn return_both(db: &Db, codes: [&'static str; 2], second_commits_first: bool) -> Session {
    let settled = json!([{"id": "p", "condition": "settled"}, {"id": "q", "condition": "settled"}]);
    let tasks = parents_and(json!([
        {"id": "child", "action": "x", "depends_on": ["p", "q"]},
        {"id": "handler", "action": "y", "depends_on": [{"id": "child", "condition": "aborted"}]},
        {"id": "always", "action": "z", "depends_on": settled},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": settled},
        {"id": "behind", "action": "b", "depends_on": ["mark"]},
        // Each parent completes one of two, which are the last parents of what is below them.
        {"id": "pm", "action": "s", "spontaneous": true, "depends_on": ["p"]},
        {"id": "qm", "action": "s", "spontaneous": true, "depends_on": ["q"]},
        {"id": "below", "action": "g", "depends_on": ["pm", "qm"]},
        {"id": "end", "action": "s", "spontaneous": true, "depends_on": ["pm", "qm"]},
    ]));
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
fn all_that_waits_for_both_hears_of_both_in_either_order_of_commit() {
    let db = Db::new();
    for second_first in ORDERS {
        for codes in [["completed"; 2], ["aborted"; 2], ["aborted", "completed"], ["completed", "aborted"]] {
            let mut session = return_both(&db, codes, second_first);
            let failures = codes.iter().filter(|code| **code == "aborted").count() as i32;
            let free = |session: &mut Session, action| session.own("w", 9, &[action]).unwrap().pop();
            let counts = session.task("child").map(|task| (task.num_signals, task.total_dependencies));
            for (action, granted) in [("x", failures == 0), ("g", failures == 0), ("y", failures > 0)] {
                assert_eq!(free(&mut session, action).is_some(), granted, "{action}, {codes:?}");
            }
            for id in ["child", "below", "end"] {
                assert_eq!(session.state(id) == "aborted", failures > 0, "{id}, {codes:?}");
            }
            if failures == 0 {
                assert_eq!(counts, Some((2, 2)));
                assert_eq!(session.state("end"), "completed");
            }
            assert_eq!(free(&mut session, "z").map(|grant| grant.num_failures), Some(failures));
            assert_eq!(session.state("mark"), "completed");
            assert!(free(&mut session, "b").is_some());
        }
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
