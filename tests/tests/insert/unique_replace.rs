//! Unique tasks that replace the one with their key: debounce. Only the newest is done, and never beside one that has
//! begun.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

use crate::unique::{at, report, unique};

#[test]
fn replace_keeps_only_the_newest() {
    let (_db, [mut session, waiter, mut watcher]) = Db::connected();
    let key = json!({"key": "k", "on_conflict": "replace"});
    let insert = |session: &mut Session, id: &str, body: &str| {
        let task =
            json!([{"id": id, "action": "x", "body": body, "delay": "1 hour", "unique_by": key.clone()}]);
        report(session, task)
    };
    at(&mut session, "00:00");
    assert_eq!(insert(&mut session, "a", "1"), ["a inserted"]);
    session.insert(json!([{"id": "after", "action": "y", "depends_on": ["a"]}])).unwrap();
    let waiting = waiter.background(|s| s.wait("a", "30 seconds").unwrap());
    watcher.until_asleep(waiting.pid());
    at(&mut session, "00:30");
    assert_eq!(insert(&mut session, "b", "2"), ["b replaced a"]);
    let (_, end) = waiting.join();
    assert_eq!(end.map(|e| (e.status_code, e.status)), Some(("aborted".into(), Some("replaced".into()))));
    assert_eq!([session.state("a"), session.state("after")], ["gone", "aborted"]);
    // The time counts anew: debounce.
    at(&mut session, "01:00");
    assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
    at(&mut session, "01:30");
    let grant = session.own_one("x");
    assert_eq!((grant.task_id.as_str(), grant.body.as_deref()), ("b", Some("2")));
    // The same id may be used again and again.
    session.complete(&grant);
    assert_eq!(insert(&mut session, "same", "1"), ["same inserted"]);
    assert_eq!(insert(&mut session, "same", "2"), ["same replaced same"]);
    at(&mut session, "02:30");
    assert_eq!(session.own_one("x").body.as_deref(), Some("2"));
    let again = json!([{"id": "same", "action": "x", "unique_by": key}]);
    assert_eq!(sqlstate(&session.insert(again).unwrap_err()), "TQ002", "in progress it keeps its id");
    session.set_now(None);
}

#[test]
fn what_cannot_be_replaced_is_followed() {
    let (_db, [mut session]) = Db::connected();
    let key = json!({"key": "k", "on_conflict": "replace"});
    session.insert(unique("a", key.clone())).unwrap();
    let first = session.own_one("x");
    assert_eq!(report(&mut session, unique("b", key.clone())), ["b inserted a"]);
    assert_eq!(session.state("b"), "blocked", "two never run at once");
    assert_eq!(report(&mut session, unique("c", key.clone())), ["c replaced b"]);
    assert_eq!([session.state("b"), session.state("c")], ["gone", "blocked"], "it comes after a as well");
    session.give("a", first.token, "aborted").unwrap();
    let grant = session.own_one("x");
    assert_eq!((grant.task_id.as_str(), grant.num_failures), ("c", 1));
    // One that is given back is older than the one that waits for it: both give way.
    assert_eq!(report(&mut session, unique("d", key.clone())), ["d inserted c"]);
    session.give("c", grant.token, "pending").unwrap();
    assert_eq!(report(&mut session, unique("e", key.clone())), ["e replaced d"]);
    assert_eq!([session.state("c"), session.state("d"), session.state("e")], ["gone", "gone", "ready"]);
    // One that names it already keeps its condition.
    let held = session.own_one("x");
    let task = json!([{"id": "f", "action": "x", "unique_by": key, "depends_on": ["e"]}]);
    assert_eq!(report(&mut session, task), ["f inserted e"]);
    session.complete(&held);
    assert_eq!(session.perform("x", "completed"), "f");
}

#[test]
fn within_a_period_the_newest_comes_at_its_end() {
    let (_db, [mut session]) = Db::connected();
    let key = json!({"key": "k", "period": "1 hour", "on_conflict": "replace"});
    at(&mut session, "00:00");
    session.insert(unique("a", key.clone())).unwrap();
    session.perform("x", "completed");
    at(&mut session, "00:10");
    assert_eq!(report(&mut session, unique("b", key.clone())), ["b inserted a"]);
    at(&mut session, "00:20");
    assert_eq!(report(&mut session, unique("c", key.clone())), ["c replaced b"]);
    assert_eq!(report(&mut session, unique("d", key.clone())), ["d replaced c"]);
    at(&mut session, "00:59:59");
    assert!(session.own("w", 9, &["x"]).unwrap().is_empty());
    at(&mut session, "01:00");
    assert_eq!(session.perform("x", "completed"), "d");
    // Its own period began when it could first be owned.
    at(&mut session, "01:59:59");
    assert_eq!(report(&mut session, unique("e", key.clone())), ["e inserted d"]);
    at(&mut session, "02:00");
    assert_eq!(session.perform("x", "aborted"), "e");
    assert_eq!(
        report(&mut session, unique("f", key.clone())),
        ["f inserted"],
        "what failed holds up nothing"
    );
    session.set_now(None);
}

#[test]
fn max_wait_bounds_what_a_debounce_puts_off() {
    let (_db, [mut session]) = Db::connected();
    let key = json!({"key": "k", "on_conflict": "replace", "max_wait": "10 minutes"});
    let task = |id: &str| json!([{"id": id, "action": "x", "delay": "4 minutes", "unique_by": key.clone()}]);
    for minute in (0..=9).step_by(3) {
        at(&mut session, &format!("00:0{minute}"));
        session.insert(task(&format!("t{minute}"))).unwrap();
        assert!(session.own("w", 9, &["x"]).unwrap().is_empty());
    }
    at(&mut session, "00:09:59");
    assert!(session.own("w", 9, &["x"]).unwrap().is_empty());
    at(&mut session, "00:10");
    assert_eq!(session.perform("x", "completed"), "t9");
    session.insert(task("next")).unwrap();
    at(&mut session, "00:13:59");
    assert!(session.own("w", 9, &["x"]).unwrap().is_empty(), "another chain, another wait");
    at(&mut session, "00:14");
    assert_eq!(session.perform("x", "completed"), "next");
    session.set_now(None);
}

/// A new task takes its namesake's place by key, and another of the call that of a task which waited for the namesake, and is
/// somewhere else by then.
#[test]
fn one_that_waits_for_a_replaced_namesake_is_replaced_as_well() {
    for condition in ["settled", "completed", "aborted"] {
        let (_db, [mut session]) = Db::with_tasks(json!([
            {"id": "a", "action": "x", "unique_by": {"key": "k1"}},
            {"id": "b", "action": "x", "unique_by": {"key": "k2"}, "depends_on": [{"id": "a", "condition": condition}]}
        ]));
        let replaced = session.insert(json!([
            {"id": "a", "action": "x", "unique_by": {"key": "k1", "on_conflict": "replace"}},
            {"id": "c", "action": "x", "unique_by": {"key": "k2", "on_conflict": "replace"}}
        ]));
        assert_eq!(replaced.unwrap(), ["a", "c"], "{condition}");
        assert_eq!(session.broken(), Vec::<String>::new(), "{condition}");
        let owned: Vec<String> =
            session.own("w", 9, &["x"]).unwrap().into_iter().map(|g| g.task_id).collect();
        assert_eq!(owned, ["a", "c"], "{condition}");
    }
}
