//! Retention: a settled task is kept for as long as it says, then removed by the queue itself, and nothing goes with it.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

/// Somebody looks for work, a few times: the work per call may be bounded.
fn somebody_calls(session: &mut Session) {
    for _ in 0..5 {
        session.own("somebody", 1, &["unrelated"]).unwrap();
    }
}

fn left(session: &mut Session) -> Vec<String> {
    session.all("SELECT id FROM taskq.tasks ORDER BY id")
}

#[test]
fn each_task_goes_when_its_own_time_is_over_and_the_others_by_default_after_a_week() {
    let db = Db::new();
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    let tasks = json!([
        {"id": "hour", "action": "x", "retention": "1 hour"}, {"id": "month", "action": "x", "retention": "30 days"},
        {"id": "week", "action": "x"}, {"id": "week too", "action": "x"}, {"id": "open", "action": "y", "retention": "0"},
    ]);
    session.insert(tasks).unwrap();
    for code in ["completed", "completed", "completed", "aborted"] {
        session.perform("x", code);
    }
    for (now, expected) in [
        ("2030-01-01 00:59:59Z", vec!["hour", "month", "open", "week", "week too"]),
        ("2030-01-01 01:01:01Z", vec!["month", "open", "week", "week too"]),
        ("2030-01-07 23:59:59Z", vec!["month", "open", "week", "week too"]),
        ("2030-01-08 00:01:01Z", vec!["month", "open"]),
        ("2030-01-31 00:01:01Z", vec!["open"]),
    ] {
        session.set_now(Some(now));
        somebody_calls(&mut session);
        assert_eq!(left(&mut session), expected, "at {now}");
    }
}

#[test]
fn the_setting_is_the_default_and_minus_one_is_for_ever() {
    let db = Db::new();
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "minute", "action": "x"}, {"id": "for ever", "action": "x"}])).unwrap();
    session.run("SET taskq.retention = '1min'");
    session.perform("x", "completed");
    session.run("SET taskq.retention = -1");
    session.perform("x", "completed");
    session.run("RESET taskq.retention");
    session.set_now(Some("2130-01-01 00:00:00Z"));
    somebody_calls(&mut session);
    assert_eq!(left(&mut session), ["for ever"]);
}

#[test]
fn removal_frees_and_deletes_nothing_else() {
    let db = Db::new();
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    let settled = json!({"id": "failed", "condition": "settled"});
    let tasks = json!([
        {"id": "done", "action": "x"}, {"id": "failed", "action": "x"}, {"id": "gate", "action": "g"},
        {"id": "child", "action": "y", "depends_on": ["done", settled, "gate"]},
        {"id": "other", "action": "y", "depends_on": ["done", "gate"]},
    ]);
    session.insert(tasks).unwrap();
    session.perform("x", "completed");
    session.perform("x", "aborted");
    session.set_now(Some("2030-02-01 00:00:00Z"));
    somebody_calls(&mut session);
    assert_eq!(left(&mut session), ["child", "gate", "other"]);
    assert_eq!(["child", "other"].map(|id| session.state(id)), ["blocked", "blocked"]);
    session.run("BEGIN");
    assert_eq!(session.delete(&["gate"]).unwrap(), 1, "each has dependencies that are settled");
    assert_eq!(["child", "other"].map(|id| session.state(id)), ["ready", "ready"]);
    session.run("ROLLBACK");
    session.perform("g", "completed");
    assert_eq!(session.own_one("y").num_failures, 1, "what it has heard it does not forget");
}

#[test]
fn an_id_is_free_again_when_its_task_is_gone() {
    let db = Db::new();
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    session.perform("x", "completed");
    assert_eq!(sqlstate(&session.insert(json!([{"id": "a", "action": "x"}])).unwrap_err()), "TQ002");
    session.set_now(Some("2030-02-01 00:00:00Z"));
    somebody_calls(&mut session);
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    assert_eq!(session.own_one("x").num_tries, 1);
}

#[test]
fn a_dependency_on_a_task_that_goes_at_the_same_time_leaves_nothing_broken() {
    let db = Db::new();
    // The edge counts at once or its target is gone; an edge to nowhere would be found by taskq.check().
    for how in ["SELECT taskq.maintain()", "SELECT taskq.delete_tasks('{done}')"] {
        for edge_first in [true, false] {
            db.clear();
            let (mut first, second, mut watcher) = (db.connect(), db.connect(), db.connect());
            watcher
                .insert(
                    json!([{"id": "done", "action": "x", "retention": "0"}, {"id": "run", "action": "y"}]),
                )
                .unwrap();
            watcher.perform("x", "completed");
            let new = json!([{"id": "new", "action": "y", "depends_on": ["done"]}]);
            first.run("BEGIN");
            if edge_first {
                first.depend_on("done", "run").unwrap();
                first.insert(new).unwrap();
                let call = second.background(move |session| session.run(how));
                call.settle_down(&mut watcher);
                first.run("COMMIT");
                call.join();
            } else {
                first.run(how);
                let call =
                    second.background(move |session| (session.depend_on("done", "run"), session.insert(new)));
                call.settle_down(&mut watcher);
                first.run("COMMIT");
                let (edge, insert) = call.join().1;
                for refused in [edge.err(), insert.err()].iter().flatten() {
                    assert_eq!(sqlstate(refused), "TQ003");
                }
            }
            assert_eq!(watcher.state("run"), "ready", "{how}, edge first: {edge_first}");
        }
    }
}
