//! Spontaneous tasks as barriers: no worker, no delay, one transaction from the last member to what comes behind. A queue
//! that leaves them to a background step shows a state in between; one that hands them to workers lets them be owned.

use serde_json::{Value, json};
use taskq_tests::{Db, refused};

use super::{hold, ready, states};

/// Three members, a barrier on this condition, and two tasks behind it.
fn barrier(condition: &str) -> Value {
    let members = ["a", "b", "c"];
    let mut tasks: Vec<Value> = members.iter().map(|id| json!({"id": id, "action": "member"})).collect();
    let edges: Vec<Value> = members.iter().map(|id| json!({"id": id, "condition": condition})).collect();
    tasks.push(json!({"id": "barrier", "action": "barrier", "spontaneous": true, "depends_on": edges}));
    tasks.push(json!({"id": "next 1", "action": "next", "depends_on": ["barrier"]}));
    tasks.push(json!({"id": "next 2", "action": "next", "depends_on": ["barrier"]}));
    json!(tasks)
}

#[test]
fn what_is_behind_a_barrier_is_free_in_the_transaction_of_the_last_member() {
    let (_db, [mut session, mut other]) = Db::with_tasks(barrier("completed"));
    let held = hold(&mut session, "member");
    session.complete(&held[2]);
    session.complete(&held[0]);
    assert_eq!(states(&mut session, ["barrier", "next 1"]), ["blocked", "blocked"]);
    session.run("BEGIN");
    session.complete(&held[1]);
    assert_eq!(states(&mut session, ["barrier", "next 1", "next 2"]), ["completed", "ready", "ready"]);
    assert_eq!(states(&mut other, ["barrier", "next 1"]), ["blocked", "blocked"]);
    session.run("COMMIT");
    assert_eq!(other.wait("barrier", "0").unwrap().unwrap().status_code, "completed");
    assert_eq!(ready(&mut other, "next"), ["next 1", "next 2"]);
}

#[test]
fn a_barrier_that_wants_all_to_be_settled_counts_the_failures() {
    let (_db, [mut session]) = Db::with_tasks(barrier("settled"));
    let held = hold(&mut session, "member");
    session.give("b", held[1].token, "aborted").unwrap();
    session.cancel(&["c"]).unwrap();
    assert_eq!(session.state("barrier"), "blocked");
    session.complete(&held[0]);
    let task = session.task("barrier").unwrap();
    assert_eq!((task.state.as_str(), task.num_failures, task.num_tries), ("completed", 2, 0));
    // Only a dependency's own end counts: what runs after the barrier has seen no failure.
    assert_eq!(session.own_one("next").num_failures, 0);
}

#[test]
fn a_barrier_can_get_more_members_while_it_is_blocked_and_none_once_it_has_passed() {
    let (_db, [mut session]) = Db::with_tasks(barrier("completed"));
    let held = hold(&mut session, "member");
    session.insert(json!([{"id": "late", "action": "late", "to_signal_after": ["barrier"]}])).unwrap();
    held.iter().for_each(|grant| session.complete(grant));
    assert_eq!(session.state("barrier"), "blocked");
    session.perform("late", "completed");
    assert_eq!(session.state("barrier"), "completed");
    let query =
        "SELECT * FROM taskq.insert_tasks('[{\"action\": \"later\", \"to_signal_after\": [\"barrier\"]}]')";
    refused(&mut session, "TQ005", "barrier", query, &[]);
}

#[test]
fn a_barrier_stands_for_all_edges_between_two_groups() {
    // 200 times 200 edges would be 40,000; with a barrier there are 400, and the effect is the same.
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks(taskq.chain(
            (SELECT jsonb_agg(jsonb_build_object('id', 'first ' || i, 'action', 'first')) FROM generate_series(1, 200) i),
            '{\"id\": \"barrier\", \"action\": \"barrier\", \"spontaneous\": true}',
            (SELECT jsonb_agg(jsonb_build_object('id', 'second ' || i, 'action', 'second')) FROM generate_series(1, 200) i)))",
    );
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.dependencies"), 400);
    let held = hold(&mut session, "first");
    for (i, grant) in held.iter().enumerate() {
        let free: i64 =
            session.one("SELECT count(*) FROM taskq.tasks WHERE action = 'second' AND state = 'ready'");
        assert_eq!(free, 0, "after {i} of 200");
        session.complete(grant);
    }
    assert_eq!(ready(&mut session, "second").len(), 200);
}

#[test]
fn a_barrier_is_not_for_workers_nor_for_hands() {
    let (_db, [mut session]) = Db::with_tasks(barrier("completed"));
    assert!(session.own("w", 10, &["barrier"]).unwrap().is_empty());
    refused(&mut session, "TQ005", "barrier", "SELECT taskq.complete_task('barrier')", &[]);
    session.cancel(&["barrier"]).unwrap();
    assert_eq!(states(&mut session, ["barrier", "next 1", "a"]), ["aborted", "aborted", "ready"]);
}
