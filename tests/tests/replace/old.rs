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
fn a_task_given_back_is_replaced_and_its_tries_forgotten() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let old = session.own_one("x");
    session.give_with("a", old.token, "pending", "status => 'later', retry_after => '0'").unwrap();
    waiting_for(&mut session, "a");
    session.replace(json!([{"id": "a", "action": "x"}])).unwrap();
    assert_heard(&mut session);
    let task = session.task("a").unwrap();
    assert_eq!((task.num_tries, task.status), (0, None));
    assert_eq!(session.own_one("x").num_tries, 1);
    let query = "SELECT taskq.return_task('a', $1)";
    refused(&mut session, "TQ001", "a", query, &[&old.token]);
}

#[test]
fn a_settled_task_is_replaced_and_no_dependent_hears_again() {
    let db = Db::new();
    for (code, needs) in [("completed", "ready"), ("aborted", "aborted")] {
        db.clear();
        let mut session = db.connect();
        session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        waiting_for(&mut session, "a");
        session.perform("x", code);
        let states =
            |session: &mut Session| ["needs", "always", "handler", "mark"].map(|id| session.state(id));
        let before = states(&mut session);
        assert_eq!(before[0], needs);
        session.replace(json!([{"id": "a", "action": "x", "body": "new"}])).unwrap();
        assert_eq!(states(&mut session), before, "settled is settled");
        let task = session.task("a").unwrap();
        assert_eq!((task.state.as_str(), task.num_tries, task.result), ("ready", 0, None));
        assert_eq!(session.perform("x", "aborted"), "a");
        assert_eq!(states(&mut session), before, "they depend on the old one, not on the new one");
    }
}

#[test]
fn a_task_in_progress_cannot_be_replaced_even_after_its_deadline() {
    let db = Db::new();
    let mut session = db.connect();
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
fn an_id_that_is_not_there_is_just_inserted() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "b", "action": "x"}])).unwrap();
    let tasks =
        json!([{"id": "a", "action": "y", "depends_on": ["b"]}, {"id": "b", "action": "y"}, {"action": "y"}]);
    let ids = session.replace(tasks).unwrap();
    assert_eq!(ids[..2], ["a", "b"]);
    assert_eq!(session.perform("y", "completed"), "b");
    assert_eq!(session.own("w", 5, &["y"]).unwrap().len(), 2);
}

#[test]
fn the_new_one_has_the_dependencies_that_the_call_gives_it_and_no_others() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "g1", "action": "g1"}, {"id": "g2", "action": "g2"}, {"id": "after", "action": "z"},
    ]);
    session.insert(tasks).unwrap();
    session.insert(json!([{"id": "a", "action": "x", "depends_on": ["g1"]}])).unwrap();
    session
        .replace(json!([{"id": "a", "action": "x", "depends_on": ["g2"], "to_signal_after": ["after"]}]))
        .unwrap();
    let edges: Vec<String> =
        session.all("SELECT concat_ws(' ', after, run) FROM taskq.dependencies ORDER BY 1");
    assert_eq!(edges, ["a after", "g2 a"]);
    session.perform("g1", "aborted");
    assert_eq!(session.state("a"), "blocked");
    session.perform("g2", "completed");
    assert_eq!(session.perform("x", "completed"), "a");
    assert_eq!(session.perform("z", "completed"), "after");
}

#[test]
fn a_dependent_that_lives_on_does_not_wait_for_the_new_one() {
    // By `settled` the child has heard of the old one's end; what the new one does is no concern of it.
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "x"}, {"id": "b", "action": "b"},
        {"id": "child", "action": "y", "depends_on": [{"id": "a", "condition": "settled"}, "b"]},
    ]);
    session.insert(tasks).unwrap();
    session.replace(json!([{"id": "a", "action": "x"}])).unwrap();
    let child = session.task("child").unwrap();
    assert_eq!((child.state.as_str(), child.num_failures), ("blocked", 1));
    session.perform("b", "completed");
    assert_eq!(session.own_one("y").num_failures, 1);
    assert_eq!(session.state("a"), "ready");
}

#[test]
fn a_dependent_that_the_replacement_aborts_cannot_be_signalled_by_the_new_one() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "needs", "action": "y", "depends_on": ["a"]}]))
        .unwrap();
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
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "x"}, {"id": "lost", "action": "y", "depends_on": ["a"]},
        {"id": "b", "action": "x"},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": [{"id": "b", "condition": "aborted"}]},
    ]);
    session.insert(tasks).unwrap();
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
    let db = Db::new();
    let mut session = db.connect();
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

#[test]
fn a_replaced_spontaneous_task_and_a_spontaneous_replacement() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "gate", "action": "g"},
        {"id": "a", "action": "s", "spontaneous": true, "depends_on": ["gate"]},
    ]);
    session.insert(tasks).unwrap();
    waiting_for(&mut session, "a");
    session.replace(json!([{"id": "a", "action": "s", "spontaneous": true}])).unwrap();
    assert_eq!(session.state("a"), "completed");
    assert_heard(&mut session);
}
