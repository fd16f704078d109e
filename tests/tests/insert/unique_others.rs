//! Keys of unique tasks beside what else moves tasks: ids, retries, resets, children, savepoints; and many at once.

use serde_json::json;
use taskq_tests::{Db, Session};

use crate::unique::{report, unique};

#[test]
fn what_has_begun_holds_its_key_when_the_task_behind_it_has_gone() {
    for end in ["SELECT taskq.cancel_tasks('{b}')", "SELECT taskq.delete_tasks('{b}')"] {
        let (_db, [mut session]) = Db::connected();
        let newest = || json!({"key": "k", "on_conflict": "replace"});
        session.insert(unique("h", newest())).unwrap();
        let grant = session.own_one("x");
        session.insert(unique("b", newest())).unwrap();
        session.run(end);
        assert_eq!(report(&mut session, unique("c", json!("k"))), ["h skipped h"], "{end}");
        assert_eq!(report(&mut session, unique("d", newest())), ["d inserted h"], "{end}");
        assert_eq!(session.state("d"), "blocked", "{end}");
        session.complete(&grant);
        assert_eq!(session.state("d"), "ready", "{end}");
    }
}

#[test]
fn a_retry_takes_no_key_away() {
    let (_db, [mut session]) = Db::with_tasks(unique("a", json!("k")));
    session.perform("x", "aborted");
    assert_eq!(report(&mut session, unique("b", json!("k"))), ["b inserted"]);
    assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks('{a}')"), 1);
    assert_eq!(report(&mut session, unique("c", json!("k"))), ["b skipped b"]);
    session.delete(&["b"]).unwrap();
    // With no other behind it, one that comes back holds its key again.
    session.insert(unique("d", json!("l"))).unwrap();
    session.cancel(&["d"]).unwrap();
    session.one::<i64>("SELECT taskq.retry_tasks('{d}')");
    assert_eq!(report(&mut session, unique("e", json!("l"))), ["d skipped d"]);
}

#[test]
fn a_group_that_is_reset_keeps_the_keys_of_what_stays() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "seed", "action": "x", "group_id": "g", "seed": true, "unique_by": "s"},
        {"id": "plain", "action": "x", "group_id": "g", "unique_by": "p"},
    ]));
    session.perform("x", "completed");
    session.run("SELECT taskq.reset_group('g')");
    assert_eq!(report(&mut session, unique("n", json!("s"))), ["seed skipped seed"]);
    assert_eq!(report(&mut session, unique("n", json!("p"))), ["n inserted"]);
    session.run("SELECT taskq.delete_group('g')");
    assert_eq!(session.all::<String>("SELECT key FROM taskq.unique_key"), ["p"]);
}

#[test]
fn children_may_be_unique() {
    let (_db, [mut session]) = Db::connected();
    let key = json!({"key": "k", "states": ["pending"]});
    session.insert(unique("a", key.clone())).unwrap();
    let grant = session.own_one("x");
    let children = json!([{"id": "b", "action": "x", "unique_by": key}, {"id": "c", "action": "x", "unique_by": "other"}]);
    session.give_with("a", grant.token, "completed", &format!("children => '{children}'")).unwrap();
    assert_eq!([session.state("b"), session.state("c")], ["ready", "ready"]);
    // A bad token leaves no key behind.
    let stale =
        json!([{"task_id": "a", "token": grant.token, "children": [{"action": "x", "unique_by": "stale"}]}]);
    session.query("SELECT * FROM taskq.return_tasks($1::jsonb)", &[&stale]).unwrap();
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.unique_key"), 2);
}

#[test]
#[ignore = "long"]
fn a_hundred_thousand_unique_tasks_go_in_at_once() {
    let (_db, [mut session]) = Db::connected();
    let insert = |session: &mut Session, key: &str| -> i64 {
        session.one(&format!(
            "SELECT count(*) FROM taskq.insert_tasks((\
               SELECT jsonb_agg(jsonb_build_object('action', 'x', 'unique_by', {key})) FROM generate_series(1, 100000) i))"
        ))
    };
    assert_eq!(insert(&mut session, "'key' || i"), 100_000);
    assert_eq!(insert(&mut session, "'key' || i"), 0);
    let same = "jsonb_build_object('key', 'same', 'on_conflict', 'replace')";
    assert_eq!(insert(&mut session, same), 1);
    assert_eq!(insert(&mut session, same), 1);
    let count = "SELECT count(*) FROM taskq.tasks";
    assert_eq!(session.one::<i64>(count), 100_001);
    // And each is told which one stands for it.
    let told = format!(
        "SELECT count(DISTINCT task_id) FROM taskq.insert_tasks_report((\
           SELECT jsonb_agg(jsonb_build_object('action', 'x', 'unique_by', {same})) FROM generate_series(1, 100000) i))"
    );
    assert_eq!(session.one::<i64>(&told), 1);
    let some = "jsonb_build_object('key', 'key' || i % 10000, 'on_conflict', 'replace')";
    assert_eq!(insert(&mut session, some), 10_000, "key 0 is new");
    assert_eq!(session.one::<i64>(count), 100_002);
}

/// A rider has begun with its leader: its key is not in the way of an insertion that asks for pending ones. The view
/// said that it was.
#[test]
fn the_view_and_insertions_agree_about_a_rider() {
    let (_db, [mut session]) = Db::connected();
    let task = |id: &str, key: &str| json!([{"id": id, "action": "x", "merge_key": "m", "unique_by": {"key": key, "states": ["pending"]}}]);
    session.insert(task("leader", "a")).unwrap();
    session.insert(task("rider", "b")).unwrap();
    let held = "SELECT key || ' ' || held FROM taskq.unique_keys ORDER BY key";
    assert_eq!(session.all::<String>(held), ["a true", "b true"]);
    let grant = session.own_one("x");
    assert_eq!((grant.task_id.as_str(), session.state("rider").as_str()), ("leader", "ready"));
    assert_eq!(session.all::<String>(held), ["a false", "b false"]);
    for key in ["a", "b"] {
        assert_eq!(report(&mut session, task(&format!("next {key}"), key)), [format!("next {key} inserted")]);
    }
}

/// Why: what was inserted behind the rider, and is replaced with it, was said to come after the rider, which is the new task itself: a circle.
#[test]
fn a_rider_with_a_successor_is_replaced_by_its_id() {
    for rides in [false, true] {
        let (_db, [mut session]) = Db::connected();
        if rides {
            session.insert(json!([{"id": "leader", "action": "x", "merge_key": "m"}])).unwrap();
        }
        let mut first = unique("first", json!("k"));
        first[0]["merge_key"] = json!("m");
        session.insert(first).unwrap();
        let grant = session.own_one("x");
        let next = unique("next", json!({"key": "k", "on_conflict": "replace"}));
        assert_eq!(report(&mut session, next), ["next inserted first"]);
        if !rides {
            session.give_with("first", grant.token, "pending", "retry_after => '1 hour'").unwrap();
        }
        session.replace(unique("first", json!({"key": "k", "on_conflict": "replace"}))).unwrap();
        let keys: Vec<String> =
            session.all("SELECT key || ' ' || task_id || ' ' || held FROM taskq.unique_keys");
        assert_eq!(keys, ["k first true"]);
        assert!(session.task("next").is_none() || session.state("next") == "aborted", "its place is taken");
    }
}
