//! A queue with tasks in every state, what is seen of it, and work that goes on in it: for tests that carry a queue from
//! one place, or one version, to another.

use serde_json::{Value, json};

use crate::session::{Grant, Session};

/// A queue with tasks in every state; the grants that are still held.
pub fn fill(session: &mut Session) -> Vec<Grant> {
    let tasks = json!([
        {"id": "done", "action": "d", "body": {"a": [1, "two"]}, "metadata": {"k": "v"}}, {"id": "failed", "action": "d"},
        {"id": "held 1", "action": "h", "max_tries": 3}, {"id": "held 2", "action": "h", "lease": "1 day"},
        {"id": "ready 1", "action": "x", "priority": 5}, {"id": "ready 2", "action": "x"},
        {"id": "scheduled", "action": "x", "not_before": "2100-01-01"},
        {"id": "blocked", "action": "x", "depends_on": ["held 1", {"id": "failed", "condition": "settled"}]},
        {"id": "below", "action": "x", "depends_on": ["blocked", "held 2"]},
        {"id": "mark", "action": "s", "spontaneous": true, "post_result": true, "depends_on": ["below"]},
        {"id": "handler", "action": "x", "depends_on": [{"id": "held 2", "condition": "aborted"}]},
        {"id": "one", "action": "u", "unique_by": {"key": "k", "period": "1 day"}},
        {"id": "a 1", "action": "f", "group_id": "a"}, {"id": "a 2", "action": "f", "group_id": "a"}, {"id": "b 1", "action": "f", "group_id": "b"},
        {"id": "waits", "action": "w", "max_tries": 2}, {"id": "later", "action": "t", "spontaneous": true, "not_before": "2100-01-01"},
        {"id": "some", "action": "x", "num_required": 2, "depends_on": ["done", "later", "held 2"]},
        {"id": "back", "action": "b"}, {"id": "日本語 \t tab \\ \"", "action": "x", "body": "line\nbreak \\N \\. é"},
    ]);
    // Groups that take turns, with a limit each and one of their own, a place of which is held.
    session.run("SELECT taskq.set_action('f', max_per_group => 1, fair => true), taskq.set_group('a', 3, 2)");
    session.insert(tasks).unwrap();
    session.run("SELECT taskq.own_tasks('holder', 1, '{f}')");
    let done = session.own_one("d");
    for (step, result) in [("pay", Some(json!({"receipt": 7}))), ("mail", None)] {
        let save = "SELECT taskq.save_step('done', $1, $2, $3)";
        session.query_one(save, &[&done.token, &step, &result]).unwrap();
    }
    session.give_with("done", done.token, "completed", "status => 'fine', result => '{\"n\": 1}'").unwrap();
    session.perform("d", "aborted");
    session.perform("b", "pending");
    // One that was suspended before, and has results of that, waits for a signal and a timer.
    for awaited in ["[\"done\"]", "[{\"id\": \"approval\", \"signal\": true}, \"later\"]"] {
        let waits = session.own_one("w");
        let arguments = format!("depends_on => '{awaited}', wait_at_most => '1000 years'");
        session.give_with("waits", waits.token, "pending", &arguments).unwrap();
    }
    session.run(
        "SELECT taskq.schedule('paused', '0 0 1 1 *', '{\"action\": \"x\"}'), taskq.pause_schedule('paused')",
    );
    // What has settled is in tallies by now, which stay behind: ids of transactions mean nothing elsewhere.
    session.run("SELECT taskq.maintain(), pg_sleep(1.1)");
    session.run("SELECT taskq.maintain(), pg_sleep(1.1)");
    session.run("SELECT taskq.maintain()");
    session.own("worker", 2, &["h"]).unwrap()
}

/// What these views and `count_tasks` tell of all of it.
pub fn snapshot(session: &mut Session) -> Vec<String> {
    [
        "tasks",
        "dependencies",
        "actors",
        "unique_keys",
        "actions",
        "groups",
        "schedules",
        "steps",
        "waits",
        "count_tasks()",
    ]
    .iter()
    .flat_map(|view| {
        session.all::<String>(&format!("SELECT to_jsonb(v)::text FROM taskq.{view} v ORDER BY 1"))
    })
    .collect()
}

/// Works with what [`fill`] has left, to the end.
pub fn work_goes_on(session: &mut Session, held: &[Grant]) {
    // New tasks do not collide with old ones, and go behind them.
    session.insert(json!([{"id": "new", "action": "x"}, {"action": "y"}])).unwrap();
    let many: Value = (0..200).map(|i| json!({"id": format!("many {i}"), "action": "y"})).collect();
    session.insert(many).unwrap();
    assert_eq!(session.own("w", 300, &["y"]).unwrap().len(), 201);
    let order: Vec<String> =
        session.own("w", 3, &["x"]).unwrap().into_iter().map(|grant| grant.task_id).collect();
    assert_eq!(order[..2], ["ready 1", "ready 2"]);
    // A worker that held a task still does.
    assert!(session.extend("worker", &[("held 1", held[0].token)], "1 hour").unwrap()[0].1);
    session.complete(&held[0]);
    assert_eq!(session.state("blocked"), "ready");
    session.give("held 2", held[1].token, "completed").unwrap();
    assert_eq!(session.state("handler"), "aborted");
    // One group's place is still held, the other's is free.
    assert_eq!(session.own("w", 9, &["f"]).unwrap().len(), 1);
    // What is suspended still is, and goes on after the signal and the time; the dependencies of the insertion are as they were.
    session.run("SELECT taskq.signal('approval', '{\"by\": \"them\"}')");
    assert_eq!(session.state("waits"), "blocked");
    session.run("SELECT taskq.update_tasks('{later}', not_before => now())");
    session.run("SELECT taskq.maintain()");
    assert_eq!((session.state("waits"), session.state("some")), ("ready".into(), "ready".into()));
    let results: Value =
        session.one("SELECT results FROM taskq.own_tasks('w', 1, '{w}', with_results => true)");
    let mut awaited: Vec<&str> =
        results.as_array().unwrap().iter().map(|r| r["task_id"].as_str().unwrap()).collect();
    awaited.sort_unstable();
    assert_eq!(awaited, ["approval", "done", "later"]);
    // Whatever is left can be done to the end.
    while let Some(grant) = session.own("w", 1, &["x", "b"]).unwrap().pop() {
        session.complete(&grant);
    }
    assert_eq!(["below", "mark", "back"].map(|id| session.state(id)), ["completed"; 3]);
    assert_eq!(session.task("back").unwrap().num_tries, 2);
    assert_eq!(session.broken(), [""; 0]);
}
