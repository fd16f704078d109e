//! Cancelling aborts whatever is not settled, also in progress, and revokes tokens: a worker that still believes to
//! hold the task can do nothing to it any more, and learns of it when it extends.

use serde_json::json;
use taskq_tests::{Db, sqlstate};

#[test]
fn whatever_is_not_settled_is_aborted_and_counted() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "done", "action": "x"}, {"id": "failed", "action": "x"}, {"id": "held", "action": "h"},
        {"id": "ready", "action": "y"}, {"id": "scheduled", "action": "y", "delay": "1 day"},
        {"id": "gate", "action": "g"}, {"id": "blocked", "action": "y", "depends_on": ["gate"]},
        {"id": "stays", "action": "z"},
    ]);
    session.insert(tasks).unwrap();
    session.perform("x", "completed");
    session.perform("x", "aborted");
    session.own_one("h");
    let listed = ["done", "failed", "held", "ready", "scheduled", "blocked", "absent", "ready"];
    assert_eq!(session.cancel(&listed).unwrap(), 4);
    assert_eq!(session.state("done"), "completed");
    for id in ["failed", "held", "ready", "scheduled", "blocked"] {
        assert_eq!(session.state(id), "aborted", "{id}");
    }
    assert_eq!([session.state("stays"), session.state("gate")], ["ready", "ready"]);
    assert!(session.own("w", 9, &["h", "y"]).unwrap().is_empty());
    assert_eq!(session.cancel(&listed).unwrap(), 0);
}

#[test]
fn the_status_of_the_call_is_kept() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    assert_eq!(session.one::<i64>("SELECT taskq.cancel_tasks('{a}', 'the customer left')"), 1);
    assert_eq!(session.cancel(&["b"]).unwrap(), 1);
    assert_eq!(session.wait("a", "0").unwrap().unwrap().status.as_deref(), Some("the customer left"));
}

#[test]
fn a_token_is_revoked_and_the_worker_learns_of_it() {
    let db = Db::new();
    let (mut worker, mut boss) = (db.connect(), db.connect());
    boss.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    let a = worker.own_one("x");
    let b = worker.own_one("x");
    boss.cancel(&["a"]).unwrap();
    let answer = worker.extend("w", &[("a", a.token), ("b", b.token)], "1 hour").unwrap();
    assert_eq!(answer, [("a".to_owned(), false), ("b".to_owned(), true)]);
    for code in ["completed", "aborted", "pending"] {
        assert_eq!(sqlstate(&worker.give("a", a.token, code).unwrap_err()), "TQ001");
    }
    assert_eq!(worker.state("a"), "aborted");
    worker.complete(&b);
}

#[test]
fn dependents_hear_of_it() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "x"},
        {"id": "needs", "action": "y", "depends_on": ["a"]},
        {"id": "always", "action": "y", "depends_on": [{"id": "needs", "condition": "settled"}]},
        {"id": "handler", "action": "y", "depends_on": [{"id": "a", "condition": "aborted"}]},
    ]);
    session.insert(tasks).unwrap();
    assert_eq!(session.cancel(&["a"]).unwrap(), 1, "what follows from it is not counted");
    let states = ["needs", "always", "handler"].map(|id| session.state(id));
    assert_eq!(states, ["aborted", "ready", "ready"]);
}

#[test]
fn a_listed_dependent_is_aborted_even_if_the_abort_of_another_would_free_it() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "x"},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": [{"id": "a", "condition": "settled"}]},
        {"id": "handler", "action": "y", "depends_on": [{"id": "a", "condition": "aborted"}]},
    ]);
    session.insert(tasks).unwrap();
    assert_eq!(session.cancel(&["a", "mark", "handler"]).unwrap(), 3);
    assert_eq!(["a", "mark", "handler"].map(|id| session.state(id)), ["aborted"; 3]);
}

#[test]
fn a_whole_chain_listed_is_counted_whole() {
    let db = Db::new();
    let mut session = db.connect();
    let task = |i: i32| {
        let after: Vec<String> = (0..i).next_back().map(|before| before.to_string()).into_iter().collect();
        json!({"id": i.to_string(), "action": "x", "depends_on": after})
    };
    session.insert((0..50).map(task).collect()).unwrap();
    let ids: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    assert_eq!(session.cancel(&ids.iter().map(String::as_str).collect::<Vec<_>>()).unwrap(), 50);
}

#[test]
fn a_cancel_and_a_return_at_once_settle_once() {
    let db = Db::new();
    for cancel_first in [false, true] {
        db.clear();
        let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher
            .insert(json!([{"id": "a", "action": "x"}, {"id": "child", "action": "y", "depends_on": ["a"]}]))
            .unwrap();
        let grant = watcher.own_one("x");
        let token = grant.token;
        first.run("BEGIN");
        if cancel_first {
            assert_eq!(first.cancel(&["a"]).unwrap(), 1);
            let call = second.background(move |session| session.give("a", token, "completed"));
            call.settle_down(&mut watcher);
            first.run("COMMIT");
            assert_eq!(sqlstate(&call.join().1.unwrap_err()), "TQ001");
            assert_eq!([watcher.state("a"), watcher.state("child")], ["aborted", "aborted"]);
        } else {
            first.complete(&grant);
            let call = second.background(|session| session.cancel(&["a"]).unwrap());
            call.settle_down(&mut watcher);
            first.run("COMMIT");
            assert_eq!(call.join().1, 0);
            assert_eq!([watcher.state("a"), watcher.state("child")], ["completed", "ready"]);
        }
    }
}

#[test]
fn a_cancel_and_a_grant_at_once_end_in_an_abort() {
    let db = Db::new();
    for cancel_first in [false, true] {
        db.clear();
        let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        first.run("BEGIN");
        if cancel_first {
            first.cancel(&["a"]).unwrap();
            assert_eq!(second.background(|session| session.own("w", 1, &["x"]).unwrap().len()).join().1, 0);
            first.run("COMMIT");
        } else {
            let grant = first.own_one("x");
            let call = second.background(|session| session.cancel(&["a"]).unwrap());
            call.settle_down(&mut watcher);
            first.run("COMMIT");
            assert_eq!(call.join().1, 1);
            assert_eq!(sqlstate(&watcher.give("a", grant.token, "completed").unwrap_err()), "TQ001");
        }
        assert_eq!(watcher.state("a"), "aborted");
    }
}

#[test]
fn cancels_in_opposite_orders_do_not_deadlock() {
    let db = Db::new();
    let mut session = db.connect();
    let ids: Vec<String> = (0..400).map(|i| i.to_string()).collect();
    // Chains of ten, so that a cancel of one also moves the next.
    let task = |i: usize| {
        let after = if i.is_multiple_of(10) {
            json!([])
        } else {
            json!([{"id": ids[i - 1], "condition": "settled"}])
        };
        json!({"id": ids[i], "action": "x", "depends_on": after})
    };
    session.insert((0..400).map(task).collect()).unwrap();
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let mut ids = ids.clone();
            if caller % 2 == 1 {
                ids.reverse();
            }
            db.connect().background(move |session| {
                let mut cancelled = 0;
                for part in ids.chunks(40) {
                    cancelled += session
                        .cancel(&part.iter().map(String::as_str).collect::<Vec<_>>())
                        .expect("no deadlock");
                }
                cancelled
            })
        })
        .collect();
    let cancelled: i64 = callers.into_iter().map(|caller| caller.join().1).sum();
    assert_eq!(cancelled, 400, "each is cancelled by exactly one call");
}

/// Where the order of locks does not help, a call that is a transaction by itself gives up what it has locked, and begins anew.
#[test]
fn a_call_alone_that_is_the_victim_of_a_deadlock_begins_anew() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    let lock = |id: &str| {
        format!(
            "SELECT FROM taskq.run r JOIN taskq.task t USING (task_no) WHERE t.id = '{id}' FOR UPDATE OF r"
        )
    };
    let mut other = db.connect();
    // The call is the one that looks for a deadlock.
    other.run("SET deadlock_timeout = '30s'; BEGIN");
    other.run(&lock("b"));
    let mut caller = db.connect();
    caller.run("SET deadlock_timeout = '4s'");
    let call = caller.background(|s| s.cancel(&["a", "b"]));
    call.settle_down(&mut session);
    other.run(&lock("a"));
    other.run("COMMIT");
    assert_eq!(call.join().1.unwrap(), 2);
    assert_eq!(session.broken(), [""; 0]);
}
