//! What becomes ready by the very call that looks for it, in a group that has a limit of its own.
//!
//! Such a task goes into the lane of its group. On wrong code the call has found out before that its action has no lanes,
//! looks into none, and comes back with nothing; and one that waits sleeps through it until its time is up.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Db, Session};

/// A way in which a task becomes ready once its time has come, and what to do for it.
type Way = (&'static str, fn(&mut Session));

const WAYS: [Way; 3] = [
    ("a delay", |session| {
        session.insert(json!([{"id": "t", "action": "x", "group_id": "g", "delay": "0.5 seconds"}])).unwrap();
    }),
    ("a retry", |session| {
        session.insert(json!([{"id": "t", "action": "x", "group_id": "g"}])).unwrap();
        let grant = session.own_one("x");
        let code = session.give_with("t", grant.token, "pending", "retry_after => '0.5 seconds'");
        assert_eq!(code.unwrap(), "pending");
    }),
    ("a change of its time", |session| {
        session.insert(json!([{"id": "t", "action": "x", "group_id": "g", "delay": "1 hour"}])).unwrap();
        session.run("SELECT taskq.update_tasks('{t}', delay => '0.5 seconds')");
    }),
];

#[test]
fn one_call_makes_it_ready_and_gets_it() {
    for (way, prepare) in WAYS {
        let (_db, [mut session]) = Db::connected();
        session.run("SELECT taskq.set_group('g', max_concurrency => 5)");
        prepare(&mut session);
        session.run("SELECT pg_sleep(0.6)");
        let owned = session.own("w", 5, &["x"]).unwrap();
        assert_eq!(owned.len(), 1, "{way}");
    }
}

#[test]
fn a_call_that_waits_for_it_comes_back_with_it() {
    for (way, prepare) in WAYS {
        let (_db, [mut session]) = Db::connected();
        session.run("SELECT taskq.set_group('g', max_concurrency => 5)");
        prepare(&mut session);
        let start = Instant::now();
        let owned = session.own_with("w", 5, &["x"], "wait => '30 seconds'").unwrap();
        assert_eq!(owned.len(), 1, "{way}");
        assert!(start.elapsed() < Duration::from_secs(15), "{way}: it slept through it");
    }
}

/// The task is not the only one: what is in no lane is granted as well, and the limit holds.
#[test]
fn what_is_in_no_lane_comes_along_and_the_limit_holds() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_group('g', max_concurrency => 2)");
    session
        .insert(json!([
            {"id": "a", "action": "x"},
            {"id": "b", "action": "x", "group_id": "g", "delay": "0.3 seconds"},
            {"id": "c", "action": "x", "group_id": "g", "delay": "0.3 seconds"},
            {"id": "d", "action": "x", "group_id": "g", "delay": "0.3 seconds"}
        ]))
        .unwrap();
    session.run("SELECT pg_sleep(0.4)");
    let mut owned: Vec<String> =
        session.own("w", 10, &["x"]).unwrap().into_iter().map(|grant| grant.task_id).collect();
    owned.sort();
    assert_eq!(owned.len(), 3, "{owned:?}");
    assert_eq!(owned[0], "a");
}

#[test]
fn what_has_just_become_due_has_its_place_in_the_order() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_group('g', max_concurrency => 1)");
    session.run("SELECT taskq.insert_many('x', '{1,2}', '{low 1,low 2}')");
    session
        .run("SELECT taskq.insert_task('high', 'x', priority => 9, group_id => 'g', delay => '0.2 seconds')");
    session.run("SELECT pg_sleep(0.3)");
    assert_eq!(session.own_one("x").task_id, "high");
    assert_eq!(session.own_one("x").task_id, "low 1");
}
