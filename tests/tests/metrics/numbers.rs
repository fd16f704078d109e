//! The numbers are those of the views, and only who may look sees them.

use serde_json::json;
use taskq_tests::{Db, Session, refused, sqlstate, until};

use super::exposition::{Series, read};

fn metrics(session: &mut Session) -> Series {
    read(&session.one::<String>("SELECT taskq.metrics()"))
}

/// A queue with tasks in every state, of actions whose names need escaping.
fn fill(session: &mut Session) {
    session
        .insert(json!([
            {"id": "done", "action": "a\"b\\c\nd{}=,"}, {"id": "failed", "action": "x"}, {"id": "held", "action": "x"},
            {"id": "late", "action": "x"}, {"id": "ready", "action": "x"}, {"id": "ready too", "action": "x"},
            {"id": "soon", "action": "x", "delay": "1 hour"}, {"id": "blocked", "action": "ü", "depends_on": ["held"]},
            {"id": "lost", "action": "ü", "depends_on": ["failed"]}, {"id": "parked", "action": "p", "group_id": "g"},
            {"id": "mark", "action": "ü", "spontaneous": true, "depends_on": ["done"]},
            {"id": "again", "action": "y"},
        ]))
        .unwrap();
    session.perform("a\"b\\c\nd{}=,", "completed");
    session.perform("x", "aborted");
    session.own_one("x");
    session.own_one_with("x", "lease => '1 millisecond'");
    session.perform("y", "pending");
    session.run("SELECT taskq.pause_group('g'); SELECT pg_sleep(0.01)");
    assert!(session.own("w", 1, &["p"]).unwrap().is_empty(), "the group is paused");
}

#[test]
fn every_task_is_counted_in_its_state() {
    let (_db, [mut session]) = Db::connected();
    fill(&mut session);
    let series = metrics(&mut session);
    let mut states = 0;
    for row in session.query("SELECT action, state, count FROM taskq.count_tasks()", &[]).unwrap() {
        let (action, state, count): (String, String, i64) = (row.get(0), row.get(1), row.get(2));
        let key = format!("taskq_tasks{{action=\"{action}\",state=\"{state}\"}}");
        assert_eq!(series.get(&key), Some(&(count as f64)), "{key} in {series:#?}");
        states += 1;
    }
    assert_eq!(states, 10);
    let total: f64 = series.iter().filter(|(key, _)| key.starts_with("taskq_tasks{")).map(|(_, n)| n).sum();
    assert_eq!(total, 12.0, "and no task twice: {series:#?}");
    for (key, number) in [
        ("taskq_overdue_tasks{action=\"x\"}", 1.0),
        ("taskq_overdue_tasks{action=\"y\"}", 0.0),
        ("taskq_settled_tasks{cause=\"returned\"}", 2.0),
        ("taskq_settled_tasks{cause=\"dependency\"}", 1.0),
        ("taskq_settled_tasks{cause=\"spontaneous\"}", 1.0),
        ("taskq_settled_tasks{cause=\"timeout\"}", 0.0),
        ("taskq_earlier_tries{outcome=\"pending\"}", 1.0),
        ("taskq_paused_groups", 1.0),
        ("taskq_actors", 1.0),
        ("taskq_expired_tasks", 0.0),
        ("taskq_deferred_signals", 0.0),
    ] {
        assert_eq!(series.get(key), Some(&number), "{key} in {series:#?}");
    }
    let age = series["taskq_oldest_ready_age_seconds{action=\"x\"}"];
    assert!((0.01..60.0).contains(&age), "{age}");
    assert!(!series.contains_key("taskq_oldest_ready_age_seconds{action=\"ü\"}"), "none is ready there");
}

/// What the view of attempts leaves out is not counted, either.
#[test]
fn a_late_return_is_no_earlier_try() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "late", "action": "x"}, {"id": "lost", "action": "x"}]));
    let late = session.own_one_with("x", "lease => '0 seconds'");
    session.own_one_with("x", "lease => '0 seconds'");
    session.run("SELECT pg_sleep(0.01); SELECT taskq.maintain()");
    session.complete(&late);
    session.perform("x", "completed");
    let viewed: i64 = session.one("SELECT count(*) FROM taskq.attempts WHERE outcome = 'timeout'");
    assert_eq!(viewed, 1);
    assert_eq!(metrics(&mut session)["taskq_earlier_tries{outcome=\"timeout\"}"], 1.0);
}

#[test]
fn settings_schedules_and_a_backlog_of_retention_show() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_action('x', max_concurrency => 2); SELECT taskq.pause_action('y')");
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y"}, {"id": "c", "action": "x"}]))
        .unwrap();
    session.run("SET taskq.retention = 0");
    session.perform("x", "completed");
    session.own_one("x");
    session.run("SELECT taskq.schedule('nightly', '0 0 * * *', '{\"action\": \"x\"}')");
    session.run("SELECT pg_sleep(0.01)");
    let series = metrics(&mut session);
    for (key, number) in [
        ("taskq_concurrency_limit{action=\"x\"}", 2.0),
        ("taskq_concurrency_slots_held{action=\"x\"}", 1.0),
        ("taskq_paused_actions{action=\"x\"}", 0.0),
        ("taskq_paused_actions{action=\"y\"}", 1.0),
        ("taskq_schedules", 1.0),
        ("taskq_due_schedules", 0.0),
        ("taskq_failing_schedules", 0.0),
    ] {
        assert_eq!(series.get(key), Some(&number), "{key} in {series:#?}");
    }
    // The claim above may have removed it already; otherwise it is a backlog.
    let kept: i64 = session.one("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'");
    assert_eq!(series["taskq_expired_tasks"], kept as f64);
    session.run("SELECT taskq.maintain()");
    assert_eq!(metrics(&mut session)["taskq_expired_tasks"], 0.0);
}

#[test]
fn waiting_calls_are_counted() {
    let (db, [mut session]) = Db::with_tasks(json!([{"id": "held", "action": "x"}]));
    let grant = session.own_one("x");
    assert_eq!(metrics(&mut session)["taskq_waiters{for=\"work\"}"], 0.0);
    let worker =
        db.connect().background(|s| s.own_with("w", 1, &["x", "y"], "wait => '30 seconds'").unwrap().len());
    let caller = db.connect().background(|s| s.wait("held", "30 seconds").unwrap().is_some());
    until("both sleep", || {
        let series = metrics(&mut session);
        (series["taskq_waiters{for=\"work\"}"] == 1.0 && series["taskq_waiters{for=\"end_of_task\"}"] == 1.0)
            .then_some(())
    });
    session.complete(&grant);
    session.insert(json!([{"id": "next", "action": "y"}])).unwrap();
    assert!(caller.join().1);
    assert_eq!(worker.join().1, 1);
    let series = metrics(&mut session);
    assert_eq!(series["taskq_waiters{for=\"work\"}"], 0.0);
    assert_eq!(series["taskq_waiters{for=\"end_of_task\"}"], 0.0);
}

#[test]
fn without_kept_only_what_is_alive_is_counted() {
    let (_db, [mut session]) = Db::connected();
    fill(&mut session);
    let series = read(&session.one::<String>("SELECT taskq.metrics(kept => false)"));
    assert_eq!(series["taskq_tasks{action=\"x\",state=\"ready\"}"], 2.0);
    assert!(!series.keys().any(|key| key.contains("completed") || key.starts_with("taskq_settled_tasks")));
    assert!(metrics(&mut session).len() > series.len());
    refused(&mut session, "22004", "kept", "SELECT taskq.metrics(NULL)", &[]);
}

#[test]
fn an_empty_queue_has_metrics_and_a_monitor_may_read_them() {
    let (db, [mut session]) = Db::connected();
    let series = metrics(&mut session);
    assert_eq!(series["taskq_schedules"], 0.0);
    let role = format!("metrics_{}", std::process::id());
    session.run(&format!("CREATE ROLE \"{role}\" LOGIN; SELECT taskq.grant_producer('\"{role}\"')"));
    let denied = db.connect_as(&role).batch_execute("SELECT taskq.metrics()").unwrap_err();
    assert_eq!(sqlstate(&denied), "42501");
    session.run(&format!("SELECT taskq.grant_monitor('\"{role}\"')"));
    assert_eq!(metrics(&mut db.connect_as(&role)).len(), series.len());
    session.run(&format!(
        "SELECT taskq.revoke_monitor('\"{role}\"'); SELECT taskq.revoke_producer('\"{role}\"')"
    ));
    session.run(&format!("DROP ROLE \"{role}\""));
}

/// An exporter that makes metrics of columns gets what one that takes the text gets.
#[test]
fn the_rows_are_those_of_the_text() {
    let (_db, [mut session]) = Db::connected();
    fill(&mut session);
    for kept in ["", "false"] {
        // In one snapshot, but for what the server's statistics and the clock say.
        session.run("SET taskq.now = '2040-01-01'");
        let series = read(&session.one::<String>(&format!("SELECT taskq.metrics({kept})")));
        let rows = session
            .query(&format!("SELECT name, labels, value FROM taskq.metrics_rows({kept})"), &[])
            .unwrap();
        assert_eq!(rows.len(), series.len());
        for row in &rows {
            let (name, labels, value): (String, serde_json::Value, f64) =
                (row.get(0), row.get(1), row.get(2));
            let mut labels: Vec<(String, String)> = labels
                .as_object()
                .unwrap()
                .iter()
                .map(|(label, value)| (label.clone(), value.as_str().unwrap().to_owned()))
                .collect();
            labels.sort();
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
            let key =
                if labels.is_empty() { name.clone() } else { format!("{name}{{{}}}", labels.join(",")) };
            let expected = series.get(&key).unwrap_or_else(|| panic!("{key} in {series:#?}"));
            assert!(name.ends_with("_total") || (expected - value).abs() < 1.0, "{key}: {value}, {expected}");
        }
    }
}
