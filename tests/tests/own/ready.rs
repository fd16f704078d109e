//! `wait_for_work` says that there is work exactly when `own_tasks` would be granted some.
//!
//! Why: it used to read the tables, and what counts is which locks others have. Beside an open grant that had the last slot or the
//! bucket of a rate it said "ready" some thousand times a second; beside an open insert of a dependent it slept on a
//! task that was there to be had. On wrong code one of the two.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Db, Session};

/// What `wait_for_work` says, and how long it took.
fn ready(session: &mut Session, timeout: &str) -> (bool, Duration) {
    let began = Instant::now();
    let ready = session.one(&format!("CALL taskq.wait_for_work('{{x}}', '{timeout}', NULL)"));
    (ready, began.elapsed())
}

fn sleeps(session: &mut Session, why: &str) {
    let (ready, time) = ready(session, "0.7 seconds");
    assert!(!ready, "{why}: nothing is to be had");
    assert!(time >= Duration::from_millis(650), "{why}: {time:?}");
    assert!(session.own("w", 9, &["x"]).unwrap().is_empty(), "{why}");
}

fn wakes(session: &mut Session, why: &str) {
    let (ready, time) = ready(session, "30 seconds");
    assert!(ready, "{why}: something is to be had");
    assert!(time < Duration::from_secs(10), "{why}: {time:?}");
    assert_eq!(session.own("w", 1, &["x"]).unwrap().len(), 1, "{why}");
}

#[test]
fn beside_an_open_grant_of_a_limited_action_it_sleeps_and_after_a_rollback_it_does_not() {
    for limit in [
        "set_action('x', max_concurrency => 1)",
        "set_action('x', rate_limit => 1, rate_period => '1 hour')",
        "set_action('x', max_per_group => 1)",
        "set_group('g', max_concurrency => 1)",
    ] {
        for end in ["COMMIT", "ROLLBACK"] {
            let (_db, [mut open, mut session]) = Db::connected();
            open.run(&format!("SELECT taskq.{limit}"));
            let task = |id: &str| json!({"id": id, "action": "x", "group_id": "g"});
            open.insert(json!([task("a"), task("b"), task("c")])).unwrap();
            // The slots of a group are made by the first grant.
            open.run("BEGIN");
            assert_eq!(open.own("w", 9, &["x"]).unwrap().len(), 1, "{limit}");
            sleeps(&mut session, limit);
            open.run(end);
            if end == "COMMIT" {
                sleeps(&mut session, limit);
            } else {
                wakes(&mut session, limit);
            }
        }
    }
}

#[test]
fn beside_an_open_insert_of_a_dependent_there_is_work_and_beside_an_open_grant_as_well_there_is_none() {
    let (_db, [mut open, mut other, mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    open.run("BEGIN");
    open.insert(json!([{"id": "child", "action": "y", "depends_on": ["a"]}])).unwrap();
    assert!(ready(&mut session, "30 seconds").0, "who holds a task lets others own it");
    // Two lockers of one row.
    other.run("BEGIN");
    assert_eq!(other.own("w", 1, &["x"]).unwrap().len(), 1);
    sleeps(&mut session, "it is in an open grant");
    other.run("ROLLBACK");
    wakes(&mut session, "the grant was rolled back");
    open.run("COMMIT");
}

#[test]
fn what_may_not_run_is_no_work_and_what_stands_behind_it_is() {
    for (hold, release) in [
        ("SELECT taskq.pause_group('g')", "SELECT taskq.resume_group('g')"),
        ("SELECT taskq.delay_workgroup('w', '1 hour')", "SELECT taskq.delay_workgroup('w', '0 seconds')"),
        (
            "SELECT taskq.set_group('g', max_concurrency => 0)",
            "SELECT taskq.set_group('g', max_concurrency => 9)",
        ),
    ] {
        let (_db, [mut session]) =
            Db::with_tasks(json!([{"id": "a", "action": "x", "group_id": "g", "workgroup": "w"}]));
        session.run(hold);
        sleeps(&mut session, hold);
        session.insert(json!([{"id": "behind", "action": "x"}])).unwrap();
        wakes(&mut session, hold);
        sleeps(&mut session, hold);
        session.run(release);
        wakes(&mut session, hold);
    }
}

#[test]
fn it_takes_nothing_of_what_it_finds() {
    let (_db, [mut session]) = Db::connected();
    session
        .run("SELECT taskq.set_action('x', max_concurrency => 1, rate_limit => 1, rate_period => '1 hour')");
    session.insert(json!([{"id": "a", "action": "x", "merge_key": "k"}, {"id": "b", "action": "x", "merge_key": "k"}]))
        .unwrap();
    for _ in 0..20 {
        assert!(ready(&mut session, "0").0);
    }
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.lease"), 0);
    let grants = session.own("w", 9, &["x"]).unwrap();
    assert_eq!((grants.len(), grants[0].num_tries), (1, 1));
    assert!(!ready(&mut session, "0").0);
}
