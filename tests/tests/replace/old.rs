//! In which states the old task may be, and who hears of its end.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

fn waiting_for(session: &mut Session, id: &str) {
    let tasks = json!([
        {"id": "needs", "action": "n", "depends_on": [id]},
        {"id": "needs needs", "action": "n", "depends_on": ["needs"]},
        {"id": "always", "action": "n", "depends_on": [{"id": id, "condition": "settled"}]},
        {"id": "handler", "action": "n", "depends_on": [{"id": id, "condition": "aborted"}]},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": [{"id": id, "condition": "settled"}]},
    ]);
    session.insert(tasks).unwrap();
}

/// The tasks that waited for the old one have seen an abort.
fn assert_heard(session: &mut Session) {
    let states = ["needs", "needs needs", "always", "handler", "mark"].map(|id| session.state(id));
    assert_eq!(states, ["aborted", "aborted", "ready", "ready", "completed"]);
    let failures: Vec<i32> =
        session.own("w", 9, &["n"]).unwrap().iter().map(|grant| grant.num_failures).collect();
    assert_eq!(failures, [1, 1]);
}

#[test]
fn a_ready_a_blocked_and_a_scheduled_task_are_replaced() {
    let db = Db::new();
    for state in ["ready", "blocked", "scheduled"] {
        db.clear();
        let mut session = db.connect();
        session.insert(json!([{"id": "gate", "action": "g"}])).unwrap();
        let mut old = json!({"id": "a", "action": "x", "body": "old", "priority": 9, "max_tries": 1});
        old["metadata"] = json!({"old": true});
        match state {
            "blocked" => old["depends_on"] = json!(["gate"]),
            "scheduled" => old["delay"] = json!("1 hour"),
            _ => {}
        }
        session.insert(json!([old])).unwrap();
        waiting_for(&mut session, "a");
        assert_eq!(session.state("a"), state);
        assert_eq!(session.replace(json!([{"id": "a", "action": "y", "body": "new"}])).unwrap(), ["a"]);
        let new = session.task("a").unwrap();
        assert_eq!(
            (new.state.as_str(), new.action.as_str(), new.body.as_deref()),
            ("ready", "y", Some("new"))
        );
        assert_eq!((new.priority, new.max_tries, new.num_tries, new.total_dependencies), (0, None, 0, 0));
        assert_eq!(
            session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE id = 'a' AND metadata IS NOT NULL"),
            0
        );
        assert_heard(&mut session);
        assert!(session.own("w", 1, &["x"]).unwrap().is_empty(), "the old one is gone");
        assert_eq!(session.own_one("y").body.as_deref(), Some("new"));
        // The old one's gate frees no task any more.
        assert_eq!(session.perform("g", "completed"), "gate");
        assert!(session.own("w", 9, &["x", "y"]).unwrap().is_empty());
    }
}

#[test]
fn a_task_in_progress_cannot_be_replaced_even_after_its_deadline() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "held", "action": "x"}, {"id": "free", "action": "x"}])).unwrap();
    let grant = session.own_one_with("x", "lease => '1 minute'");
    let tasks =
        json!([{"id": "free", "action": "y"}, {"id": "held", "action": "y"}, {"id": "new", "action": "y"}]);
    refused(&mut session, "TQ005", "held", "SELECT taskq.replace_tasks($1)", &[&tasks]);
    session.set_now(Some("2030-01-01 01:00:00Z"));
    refused(&mut session, "TQ005", "held", "SELECT taskq.replace_tasks($1)", &[&tasks]);
    session.complete(&grant);
}

#[test]
fn a_dependent_that_the_replacement_aborts_cannot_be_signalled_by_the_new_one() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "needs", "action": "y", "depends_on": ["a"]}]),
    );
    let tasks = json!([{"id": "a", "action": "x", "to_signal_after": ["needs"]}]);
    refused(&mut session, "TQ005", "needs", "SELECT taskq.replace_tasks($1)", &[&tasks]);
    // One that lives on can.
    let settled = json!({"id": "a", "condition": "settled"});
    session
        .insert(
            json!([{"id": "b", "action": "x"}, {"id": "child", "action": "y", "depends_on": [settled, "b"]}]),
        )
        .unwrap();
    session
        .replace(
            json!([{"id": "a", "action": "x", "to_signal_after": [{"id": "child", "condition": "settled"}]}]),
        )
        .unwrap();
    let child = session.task("child").unwrap();
    assert_eq!((child.num_signals, child.total_dependencies, child.num_failures), (1, 3, 1));
}

#[test]
fn a_replacement_that_depends_on_what_its_own_abort_settles_counts_that_at_once() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "x"}, {"id": "lost", "action": "y", "depends_on": ["a"]},
        {"id": "b", "action": "x"},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": [{"id": "b", "condition": "aborted"}]},
    ]));
    let tasks = json!([
        {"id": "a", "action": "x", "depends_on": ["lost"]},
        {"id": "b", "action": "x", "depends_on": ["mark"]},
    ]);
    session.replace(tasks).unwrap();
    let states = ["lost", "a", "mark", "b"].map(|id| session.state(id));
    assert_eq!(states, ["aborted", "aborted", "completed", "ready"]);
}

#[test]
fn many_are_replaced_at_once_with_edges_among_old_and_new() {
    let (_db, [mut session]) = Db::connected();
    // A chain in one direction is replaced by the same ids in the other.
    let ids: Vec<String> = (0..200).map(|i| i.to_string()).collect();
    let up: Vec<_> = (0..200)
        .map(|i| {
            json!({"id": ids[i], "action": "x", "depends_on": ids[..i].last()
        .map(|id| vec![id])})
        })
        .collect();
    session.insert(json!(up)).unwrap();
    let down: Vec<_> = (0..200)
        .map(|i| json!({"id": ids[i], "action": "x", "depends_on": ids.get(i + 1).map(|id| vec![id])}))
        .collect();
    assert_eq!(session.replace(json!(down)).unwrap(), ids);
    for id in ids.iter().rev() {
        assert_eq!(&session.perform("x", "completed"), id);
    }
}
