//! Deletion takes along every dependent that was blocked and has no dependency left, and frees those that have only
//! settled ones. A deletion that drops rows without looking leaves blocked tasks that nothing will ever free.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

fn left(session: &mut Session) -> Vec<String> {
    session.all("SELECT id FROM taskq.tasks ORDER BY id")
}

#[test]
fn a_task_in_any_state_but_in_progress_goes() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "done", "action": "x"}, {"id": "failed", "action": "x"}, {"id": "ready", "action": "y"},
        {"id": "scheduled", "action": "y", "delay": "1 day"}, {"id": "blocked", "action": "y", "depends_on": ["ready"]},
        {"id": "stays", "action": "y"},
    ]);
    session.insert(tasks).unwrap();
    session.perform("x", "completed");
    session.perform("x", "aborted");
    let listed = ["done", "failed", "ready", "scheduled", "blocked", "absent", "done"];
    assert_eq!(session.delete(&listed).unwrap(), 5);
    assert_eq!(left(&mut session), ["stays"]);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.dependencies"), 0);
    session.insert(json!([{"id": "done", "action": "x"}])).unwrap();
    assert_eq!(session.own_one("x").num_tries, 1);
}

#[test]
fn one_in_progress_refuses_the_whole_call() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "held", "action": "x"}, {"id": "free", "action": "y"}])).unwrap();
    let grant = session.own_one("x");
    refused(&mut session, "TQ005", "held", "SELECT taskq.delete_tasks('{free,held}')", &[]);
    session.complete(&grant);
    assert_eq!(session.delete(&["free", "held"]).unwrap(), 2);
}

#[test]
fn dependents_without_any_other_dependency_go_too_and_are_counted() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "x"}, {"id": "b", "action": "x"},
        {"id": "only a", "action": "x", "depends_on": ["a"]},
        {"id": "below", "action": "x", "depends_on": ["only a"]},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": [{"id": "below", "condition": "settled"}]},
        {"id": "a and b", "action": "x", "depends_on": ["a", "b"]},
        {"id": "both below", "action": "x", "depends_on": ["below", "a and b"]},
    ]);
    session.insert(tasks).unwrap();
    assert_eq!(session.delete(&["a"]).unwrap(), 4);
    assert_eq!(left(&mut session), ["a and b", "b", "both below"]);
    assert_eq!(session.task("a and b").unwrap().total_dependencies, 1);
    for expected in ["b", "a and b", "both below"] {
        assert_eq!(session.perform("x", "completed"), expected);
    }
}

#[test]
fn a_dependent_left_with_settled_dependencies_only_becomes_ready() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "done", "action": "d"}, {"id": "failed", "action": "d"}, {"id": "open", "action": "o"},
    ]);
    session.insert(tasks).unwrap();
    session.perform("d", "completed");
    session.perform("d", "aborted");
    let tasks = json!([
        {"id": "task", "action": "x", "depends_on": ["done", "open", {"id": "failed", "condition": "settled"}]},
        {"id": "mark", "action": "s", "spontaneous": true, "depends_on": ["done", "open"]},
        {"id": "after mark", "action": "y", "depends_on": ["mark"]},
        {"id": "later", "action": "x", "delay": "1 day", "depends_on": ["done", "open"]},
    ]);
    session.insert(tasks).unwrap();
    assert_eq!(session.delete(&["open"]).unwrap(), 1);
    let states = ["task", "mark", "after mark", "later"].map(|id| session.state(id));
    assert_eq!(states, ["ready", "completed", "ready", "scheduled"]);
    assert_eq!(session.own_one("x").num_failures, 1);
}

#[test]
fn one_that_was_already_free_stays_as_it_is() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let tasks = json!([
        {"id": "ready", "action": "r", "depends_on": ["a"]},
        {"id": "held", "action": "h", "depends_on": ["a"]},
        {"id": "done", "action": "d", "depends_on": ["a"]},
    ]);
    session.insert(tasks).unwrap();
    session.perform("x", "completed");
    let grant = session.own_one("h");
    session.perform("d", "completed");
    assert_eq!(session.delete(&["a"]).unwrap(), 1);
    assert_eq!(["ready", "held", "done"].map(|id| session.state(id)), ["ready", "in-progress", "completed"]);
    session.complete(&grant);
    assert_eq!(session.perform("r", "completed"), "ready");
}

/// A task that waits for `done`, which is, and for `open`.
fn insert_child_of_one_that_is_done(session: &mut Session) {
    let tasks = json!([
        {"id": "done", "action": "d"}, {"id": "open", "action": "o"},
        {"id": "child", "action": "x", "depends_on": ["done", "open"]},
    ]);
    session.insert(tasks).unwrap();
    session.perform("d", "completed");
}

#[test]
fn a_settled_dependency_deleted_leaves_the_open_one() {
    let db = Db::new();
    let mut session = db.connect();
    insert_child_of_one_that_is_done(&mut session);
    assert_eq!(session.delete(&["done"]).unwrap(), 1);
    assert_eq!(session.state("child"), "blocked");
    session.perform("o", "completed");
    assert_eq!(session.perform("x", "completed"), "child");
}

#[test]
fn what_a_replaced_dependency_left_counts() {
    // The child has heard of the end of the old a; it has a settled dependency, whatever became of the id.
    let db = Db::new();
    let mut session = db.connect();
    let settled = json!({"id": "a", "condition": "settled"});
    let tasks = json!([
        {"id": "a", "action": "x"}, {"id": "b", "action": "x"},
        {"id": "child", "action": "y", "depends_on": [settled, "b"]},
    ]);
    session.insert(tasks).unwrap();
    session.replace(json!([{"id": "a", "action": "x"}])).unwrap();
    assert_eq!(session.delete(&["b"]).unwrap(), 1);
    assert_eq!(session.own_one("y").num_failures, 1);
}

#[test]
fn deleting_all_dependencies_at_once_takes_the_dependent_along() {
    let db = Db::new();
    let mut session = db.connect();
    insert_child_of_one_that_is_done(&mut session);
    assert_eq!(session.delete(&["open", "done"]).unwrap(), 3);
    assert!(left(&mut session).is_empty());
}

#[test]
fn a_long_chain_and_a_wide_fan_go_in_one_call() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'c' || i, 'action', 'x') || \
         CASE WHEN i > 0 THEN jsonb_build_object('depends_on', jsonb_build_array('c' || i - 1)) ELSE '{}' END) \
         FROM generate_series(0, 2999) i)); \
         SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'f' || i, 'action', 'x', \
         'depends_on', jsonb_build_array('c2999'))) FROM generate_series(1, 5000) i))",
    );
    assert_eq!(session.delete(&["c0"]).unwrap(), 8000);
    assert!(left(&mut session).is_empty());
}

#[test]
fn a_delete_and_a_grant_cannot_both_have_the_task() {
    let db = Db::new();
    for delete_first in [false, true] {
        db.clear();
        let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        first.run("BEGIN");
        if delete_first {
            first.delete(&["a"]).unwrap();
            let call = second.background(|session| session.own("w", 1, &["x"]).unwrap().len());
            assert_eq!(call.join().1, 0);
            first.run("COMMIT");
        } else {
            let grant = first.own_one("x");
            let call = second.background(|session| session.delete(&["a"]));
            call.settle_down(&mut watcher);
            first.run("COMMIT");
            assert_eq!(taskq_tests::sqlstate(&call.join().1.unwrap_err()), "TQ005");
            watcher.complete(&grant);
        }
    }
}

#[test]
fn a_delete_races_with_a_return_that_frees_the_dependent() {
    let db = Db::new();
    // The dependent is blocked by both; one parent is deleted while the other returns. It must not be stranded.
    for delete_first in [false, true] {
        db.clear();
        let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
        let tasks = json!([
            {"id": "p", "action": "p"}, {"id": "q", "action": "q"},
            {"id": "child", "action": "x", "depends_on": ["p", "q"]},
        ]);
        watcher.insert(tasks).unwrap();
        let grant = watcher.own_one("p");
        first.run("BEGIN");
        let call = if delete_first {
            first.delete(&["q"]).unwrap();
            second.background(move |session| session.complete(&grant))
        } else {
            first.complete(&grant);
            second.background(|session| assert_eq!(session.delete(&["q"]).unwrap(), 1))
        };
        call.settle_down(&mut watcher);
        first.run("COMMIT");
        call.join();
        assert_eq!(watcher.own_one("x").task_id, "child", "delete first: {delete_first}");
    }
}

#[test]
fn a_signal_that_was_deferred_is_counted_before_its_dependency_goes() {
    let db = Db::new();
    let (mut busy, mut session) = (db.connect(), db.connect());
    let settled = |id: &str| json!({"id": id, "condition": "settled"});
    session
        .insert(json!([
            {"id": "a", "action": "x"}, {"id": "b", "action": "y"}, {"id": "c", "action": "z"},
            {"id": "last", "action": "w", "depends_on": [settled("a"), settled("b"), settled("c")]},
        ]))
        .unwrap();
    let (a, b) = (session.own_one("x"), session.own_one("y"));
    // The counter is locked while "a" aborts, so that its signal is deferred; and no call comes by to count it.
    busy.run("BEGIN");
    busy.complete(&b);
    session.give("a", a.token, "aborted").unwrap();
    busy.run("ROLLBACK");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.countdown"), 1);
    assert_eq!(session.delete(&["a"]).unwrap(), 1);
    let last = session.task("last").unwrap();
    assert_eq!((last.num_signals, last.total_dependencies, last.num_failures), (0, 2, 0));
    assert_eq!(session.broken(), [""; 0]);
    session.give("b", b.token, "completed").unwrap();
    session.perform("z", "completed");
    assert_eq!(session.own_one("w").task_id, "last");
}
