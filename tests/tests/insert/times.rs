//! `not_before` and `delay`: not owned earlier, and at the end of the line when the time has come.

use serde_json::json;
use taskq_tests::{Db, sqlstate};

#[test]
fn a_task_is_not_owned_before_its_time() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    let tasks = json!([
        {"id": "delayed", "action": "x", "delay": "10 minutes"},
        {"id": "dated", "action": "x", "not_before": "2030-01-01 00:20:00Z"},
        {"id": "past", "action": "x", "not_before": "2029-01-01 00:00:00Z"},
        {"id": "no delay", "action": "x", "delay": "0"},
    ]);
    session.insert(tasks).unwrap();
    assert_eq!([session.state("delayed"), session.state("dated")], ["scheduled", "scheduled"]);
    for (now, expected) in [
        ("2030-01-01 00:00:00Z", vec!["past", "no delay"]),
        ("2030-01-01 00:09:59Z", vec![]),
        ("2030-01-01 00:10:01Z", vec!["delayed"]),
        ("2030-01-01 00:19:59Z", vec![]),
        ("2030-01-01 00:20:01Z", vec!["dated"]),
    ] {
        session.set_now(Some(now));
        let ids: Vec<String> = session.own("w", 5, &["x"]).unwrap().into_iter().map(|g| g.task_id).collect();
        assert_eq!(ids, expected, "at {now}");
    }
}

#[test]
fn a_due_task_keeps_its_priority_and_goes_behind_those_that_were_ready() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    let tasks = json!([
        {"id": "late urgent", "action": "x", "delay": "1 minute", "priority": 1},
        {"id": "late", "action": "x", "delay": "1 minute"},
    ]);
    session.insert(tasks).unwrap();
    session.insert(json!([{"id": "early", "action": "x"}])).unwrap();
    session.set_now(Some("2030-01-01 00:02:00Z"));
    let ids: Vec<String> = session.own("w", 5, &["x"]).unwrap().into_iter().map(|g| g.task_id).collect();
    assert_eq!(ids, ["late urgent", "early", "late"]);
}

#[test]
fn not_before_and_delay_exclude_each_other() {
    let (_db, [mut session]) = Db::connected();
    let tasks = json!([{"id": "a", "action": "x", "delay": "1 minute", "not_before": "2030-01-01"}]);
    assert_eq!(sqlstate(&session.insert(tasks).unwrap_err()), "TQ006");
}

#[test]
fn far_and_extreme_times_are_kept_or_refused_cleanly() {
    let (_db, [mut session]) = Db::connected();
    for (i, (key, value)) in [
        ("not_before", "infinity"),
        ("not_before", "-infinity"),
        ("not_before", "294276-01-01"),
        ("not_before", "4713-01-01 BC"),
        ("delay", "290000 years"),
        ("delay", "178000000 years"),
        ("lease", "178000000 years"),
        ("retention", "178000000 years"),
    ]
    .into_iter()
    .enumerate()
    {
        let tasks = json!([{"id": format!("t{i}"), "action": "x", key: value}]);
        if let Err(error) = session.insert(tasks) {
            assert!(["TQ006", "22008"].contains(&sqlstate(&error)), "{key} {value}: {error:?}");
        }
    }
    for _ in 0..8 {
        // A lease that ends after the end of time must not take the backend or the queue with it.
        match session.own("w", 1, &["x"]) {
            Ok(grants) if grants.is_empty() => break,
            Ok(grants) => session.complete(&grants[0]),
            Err(error) => panic!("own_tasks: {error:?}"),
        }
    }
}
