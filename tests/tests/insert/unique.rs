//! Unique tasks: throttle, debounce, and what a call says of them. One session; several are in `unique_races`.

use serde_json::{Value, json};
use taskq_tests::{Db, Session, refused, sqlstate};

/// What `insert_tasks_report` says, as `id outcome existing`.
pub fn report(session: &mut Session, tasks: Value) -> Vec<String> {
    let query = "SELECT concat_ws(' ', task_id, outcome, existing_id) FROM taskq.insert_tasks_report($1)";
    session.query(query, &[&tasks]).unwrap().iter().map(|row| row.get(0)).collect()
}

const INSERT: &str = "SELECT * FROM taskq.insert_tasks($1)";

fn unique(id: &str, key: Value) -> Value {
    json!([{"id": id, "action": "x", "unique": key}])
}

fn at(session: &mut Session, time: &str) {
    session.set_now(Some(&format!("2030-01-01 {time}Z")));
}

#[test]
fn a_key_is_held_until_its_task_settles() {
    let db = Db::new();
    let mut session = db.connect();
    assert_eq!(report(&mut session, unique("a", json!("k"))), ["a inserted"]);
    assert_eq!(report(&mut session, unique("b", json!("k"))), ["a skipped a"]);
    let grant = session.own_one("x");
    assert_eq!(report(&mut session, unique("b", json!("k"))), ["a skipped a"], "in progress");
    session.give(&grant.task_id, grant.token, "pending").unwrap();
    assert_eq!(report(&mut session, unique("b", json!("k"))), ["a skipped a"], "given back");
    session.perform("x", "aborted");
    assert_eq!(report(&mut session, unique("b", json!("k"))), ["b inserted"]);
    assert_eq!(session.perform("x", "completed"), "b");
    assert_eq!(report(&mut session, unique("c", json!("k"))), ["c inserted"]);
    assert_eq!(session.cancel(&["c"]).unwrap(), 1);
    assert_eq!(report(&mut session, unique("d", json!("k"))), ["d inserted"]);
    assert_eq!(session.delete(&["d"]).unwrap(), 1);
    assert_eq!(report(&mut session, unique("e", json!("k"))), ["e inserted"]);
}

#[test]
fn the_plain_forms_return_what_they_inserted() {
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "a", "action": "x", "unique": "k"}, {"id": "b", "action": "x", "unique": "k"},
        {"id": "c", "action": "x"}, {"id": "d", "action": "other", "unique": "k"},
    ]);
    assert_eq!(session.insert(tasks).unwrap(), ["a", "c", "d"], "a key belongs to its action");
    let one = "SELECT taskq.insert_task(NULL, 'x', unique_by => '\"k\"')";
    assert_eq!(session.one::<Option<String>>(one), None);
    let two = "SELECT taskq.insert_task('n', 'x', unique_by => '{\"key\": \"other\"}')";
    assert_eq!(session.one::<Option<String>>(two).as_deref(), Some("n"));
    let three = "SELECT taskq.insert_task('m', 'x', unique_by => 'false')";
    assert_eq!(session.one::<Option<String>>(three).as_deref(), Some("m"));
    let keys: Vec<String> = session
        .all("SELECT concat_ws(' ', action, key, task_id, state, held) FROM taskq.unique_keys ORDER BY 1");
    assert_eq!(keys, ["other k d ready t", "x k a ready t", "x other n ready t"]);
    assert_eq!(session.one::<Option<String>>("SELECT unique_key FROM taskq.tasks WHERE id = 'c'"), None);
    assert_eq!(
        session.one::<Option<String>>("SELECT unique_key FROM taskq.tasks WHERE id = 'a'").as_deref(),
        Some("k")
    );
}

#[test]
fn without_a_key_the_body_is_it() {
    let db = Db::new();
    let mut session = db.connect();
    let long = "x".repeat(5000);
    let task = |body: Value| json!({"action": "x", "unique": true, "body": body});
    let tasks = json!([
        task(json!({"a": 1, "b": 2})),
        task(json!({"b": 2, "a": 1})),
        task(json!({"a": 1})),
        task(json!("")),
        task(Value::Null),
        task(Value::Null),
        task(json!(long)),
        task(json!(format!("{long}y"))),
        task(json!(long)),
    ]);
    let outcomes: Vec<String> =
        report(&mut session, tasks).iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
    let expected =
        ["inserted", "skipped", "inserted", "inserted", "inserted", "skipped", "inserted", "inserted"];
    assert_eq!(outcomes[..8], expected);
    assert_eq!(outcomes[8], "skipped");
    let longest: i32 = session.one("SELECT max(octet_length(unique_key)) FROM taskq.tasks");
    assert!(longest < 100, "of a long body the key has the digest: {longest}");
}

#[test]
fn a_period_throttles_to_its_very_end() {
    let db = Db::new();
    let mut session = db.connect();
    let key = json!({"key": "k", "period": "1 hour"});
    at(&mut session, "00:00");
    assert_eq!(report(&mut session, unique("a", key.clone())), ["a inserted"]);
    session.perform("x", "completed");
    at(&mut session, "00:59:59.999999");
    assert_eq!(report(&mut session, unique("b", key.clone())), ["a skipped a"]);
    at(&mut session, "01:00");
    assert_eq!(report(&mut session, unique("b", key.clone())), ["b inserted"]);
    // Pending, and its period over: each period has one.
    at(&mut session, "02:00");
    assert_eq!(report(&mut session, unique("c", key.clone())), ["c inserted"]);
    session.perform("x", "completed");
    session.perform("x", "aborted");
    assert_eq!(session.state("c"), "aborted");
    assert_eq!(report(&mut session, unique("d", key.clone())), ["d inserted"], "what failed holds nothing");
    // The period begins when the task may first be owned.
    let later = json!([{"id": "e", "action": "x", "delay": "30 minutes", "unique": {"key": "l", "period": "1 hour"}}]);
    assert_eq!(report(&mut session, later), ["e inserted"]);
    at(&mut session, "03:29:59");
    assert_eq!(report(&mut session, unique("f", json!({"key": "l", "period": "1 hour"}))), ["e skipped e"]);
    at(&mut session, "03:30");
    assert_eq!(report(&mut session, unique("f", json!({"key": "l", "period": "1 hour"}))), ["f inserted"]);
    session.set_now(None);
}

#[test]
fn retention_waits_for_the_end_of_the_period() {
    let db = Db::new();
    let mut session = db.connect();
    let insert = |session: &mut Session, id: &str| {
        let key = json!({"key": "k", "period": "1 hour"});
        report(session, json!([{"id": id, "action": "x", "retention": "0", "unique": key}]))
    };
    at(&mut session, "00:00");
    assert_eq!(insert(&mut session, "a"), ["a inserted"]);
    session.perform("x", "completed");
    session.run("SELECT taskq.maintain()");
    at(&mut session, "00:30");
    session.run("SELECT taskq.maintain()");
    assert_eq!(insert(&mut session, "b"), ["a skipped a"]);
    at(&mut session, "01:00");
    session.run("SELECT taskq.maintain()");
    assert_eq!(session.state("a"), "gone");
    assert_eq!(
        session.one::<i64>("SELECT count(*) FROM taskq.unique_key"),
        0,
        "the row has gone with its task"
    );
    assert_eq!(insert(&mut session, "b"), ["b inserted"]);
    // The other way of settling, several different ends in one call.
    let grant = session.own_one("x");
    let query = "SELECT count(*) FROM taskq.return_tasks(jsonb_build_array( \
                 jsonb_build_object('task_id', $1::text, 'token', $2::uuid, 'status', 'one'), \
                 jsonb_build_object('task_id', 'no', 'token', $2::uuid, 'status', 'two')))";
    session.query_one(query, &[&grant.task_id, &grant.token]).unwrap();
    session.run("SELECT taskq.maintain()");
    assert_eq!(session.state("b"), "completed");
    session.set_now(None);
}

#[test]
fn states_say_when_a_task_holds_its_key() {
    let db = Db::new();
    let mut session = db.connect();
    // At most one that waits: while one is in progress another may be inserted.
    let waiting = json!({"key": "w", "states": ["pending"]});
    assert_eq!(report(&mut session, unique("a", waiting.clone())), ["a inserted"]);
    assert_eq!(report(&mut session, unique("b", waiting.clone())), ["a skipped a"]);
    let grant = session.own_one("x");
    assert_eq!(report(&mut session, unique("b", waiting.clone())), ["b inserted"]);
    assert_eq!(report(&mut session, unique("c", waiting.clone())), ["b skipped b"]);
    session.complete(&grant);
    assert_eq!(session.perform("x", "completed"), "b");
    // For as long as it is kept.
    let kept = json!({"key": "kept", "states": ["pending", "in-progress", "completed", "aborted"]});
    assert_eq!(report(&mut session, unique("k", kept.clone())), ["k inserted"]);
    session.perform("x", "aborted");
    assert_eq!(report(&mut session, unique("l", kept.clone())), ["k skipped k"]);
    session.delete(&["k"]).unwrap();
    assert_eq!(report(&mut session, unique("l", kept)), ["l inserted"]);
    // A task that is pending does not hold a key that only the completed hold.
    let done = json!({"key": "d", "states": ["completed"]});
    let both = json!([
        {"id": "m", "action": "y", "unique": done.clone()}, {"id": "n", "action": "y", "unique": done.clone()},
    ]);
    assert_eq!(report(&mut session, both), ["m inserted", "n inserted"]);
    session.perform("y", "completed");
    let third = json!([{"id": "o", "action": "y", "unique": done}]);
    assert_eq!(report(&mut session, third.clone()), ["o inserted"], "n was the last, and it is pending");
    session.cancel(&["n"]).unwrap();
    session.perform("y", "completed");
    let fourth = json!([{"id": "p", "action": "y", "unique": {"key": "d"}}]);
    assert_eq!(report(&mut session, fourth), ["o skipped o"]);
}

#[test]
fn error_refuses_the_whole_call() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(unique("a", json!("k"))).unwrap();
    let key = json!({"key": "k", "on_conflict": "error"});
    let tasks = json!([{"id": "n", "action": "x"}, {"id": "b", "action": "x", "unique": key.clone()}]);
    let error = refused(&mut session, "TQ002", "\"k\"", INSERT, &[&tasks]);
    assert!(error.message().contains("\"a\""), "{error:?}");
    let twice = json!([
        {"id": "n", "action": "y", "unique": key.clone()}, {"id": "m", "action": "y", "unique": key},
    ]);
    assert_eq!(sqlstate(&session.insert(twice).unwrap_err()), "TQ002");
    assert_eq!(
        session.one::<i64>("SELECT count(*) FROM taskq.unique_key"),
        1,
        "the refused call left no key"
    );
}

#[test]
fn replace_keeps_only_the_newest() {
    let db = Db::new();
    let (mut session, waiter, mut watcher) = (db.connect(), db.connect(), db.connect());
    let key = json!({"key": "k", "on_conflict": "replace"});
    let insert = |session: &mut Session, id: &str, body: &str| {
        let task = json!([{"id": id, "action": "x", "body": body, "delay": "1 hour", "unique": key.clone()}]);
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
    let again = json!([{"id": "same", "action": "x", "unique": key}]);
    assert_eq!(sqlstate(&session.insert(again).unwrap_err()), "TQ002", "in progress it keeps its id");
    session.set_now(None);
}

#[test]
fn what_cannot_be_replaced_is_followed() {
    let db = Db::new();
    let mut session = db.connect();
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
    let task = json!([{"id": "f", "action": "x", "unique": key, "depends_on": ["e"]}]);
    assert_eq!(report(&mut session, task), ["f inserted e"]);
    session.complete(&held);
    assert_eq!(session.perform("x", "completed"), "f");
}

#[test]
fn within_a_period_the_newest_comes_at_its_end() {
    let db = Db::new();
    let mut session = db.connect();
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
    let db = Db::new();
    let mut session = db.connect();
    let key = json!({"key": "k", "on_conflict": "replace", "max_wait": "10 minutes"});
    let task = |id: &str| json!([{"id": id, "action": "x", "delay": "4 minutes", "unique": key.clone()}]);
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

#[test]
fn the_newest_of_one_array_wins_and_dependencies_follow() {
    let db = Db::new();
    let mut session = db.connect();
    let replace = json!({"key": "k", "on_conflict": "replace"});
    session.insert(unique("old", replace.clone())).unwrap();
    let tasks = json!([
        {"id": "a", "action": "x", "unique": replace.clone()},
        {"id": "s", "action": "x", "unique": "k"},
        {"id": "b", "action": "x", "unique": replace.clone(), "depends_on": ["a"]},
        {"id": "c", "action": "y", "depends_on": ["a", "s"]},
        {"id": "d", "action": "z", "to_signal_after": ["a"]},
    ]);
    assert_eq!(
        report(&mut session, tasks),
        ["b skipped b", "b skipped b", "b replaced old", "c inserted", "d inserted"]
    );
    let edges: Vec<String> = session.all("SELECT after || '>' || run FROM taskq.dependencies ORDER BY 1");
    assert_eq!(edges, ["b>c", "d>b"]);
    // A dependency on what is left out is one on the task that stands for it, settled or not.
    session.perform("z", "completed");
    session.perform("x", "completed");
    session.perform("y", "completed");
    let kept = json!({"key": "k", "states": ["completed"], "period": "1 day"});
    session.insert(unique("done", kept.clone())).unwrap();
    session.perform("x", "completed");
    let tasks = json!([
        {"id": "again", "action": "x", "unique": "k"}, {"id": "next", "action": "y", "depends_on": ["again"]},
    ]);
    assert_eq!(report(&mut session, tasks), ["done skipped done", "next inserted"]);
    assert_eq!(session.state("next"), "ready");
}

#[test]
fn ids_and_keys_go_together() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(unique("a", json!("k"))).unwrap();
    // The id is there: nothing is inserted, and no key is taken.
    let tasks = unique("a", json!("other"));
    assert!(session.insert_with(tasks, "on_conflict => 'skip'").unwrap().is_empty());
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.unique_key"), 1);
    // Both are there: the key decides first.
    assert_eq!(report(&mut session, unique("a", json!("k"))), ["a skipped a"]);
    // By id: the task that gives way gives its key up.
    let replace = "SELECT concat_ws(' ', task_id, outcome, existing_id) \
                   FROM taskq.insert_tasks_report($1, on_conflict => 'replace')";
    let mut replaced = |tasks: Value| -> Vec<String> {
        session.query(replace, &[&tasks]).unwrap().iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(replaced(unique("a", json!("k"))), ["a replaced a"]);
    assert_eq!(replaced(unique("a", json!("l"))), ["a replaced a"]);
    assert_eq!(replaced(unique("b", json!("k"))), ["b inserted"]);
    assert_eq!(replaced(unique("b", json!("l"))), ["a skipped a"]);
    assert_eq!(
        replaced(json!([{"id": "a", "action": "x"}, {"id": "new", "action": "x"}])),
        ["a replaced a", "new inserted"]
    );
    let keys: Vec<String> = session.all("SELECT key || task_id FROM taskq.unique_keys");
    assert_eq!(keys, ["kb"], "b was left alone, and a has no key any more");
    assert_eq!(report(&mut session, json!([{"id": "a2", "action": "x"}])), ["a2 inserted"]);
}

#[test]
fn a_retry_takes_no_key_away() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(unique("a", json!("k"))).unwrap();
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
    let db = Db::new();
    let mut session = db.connect();
    let tasks = json!([
        {"id": "seed", "action": "x", "group": "g", "seed": true, "unique": "s"},
        {"id": "plain", "action": "x", "group": "g", "unique": "p"},
    ]);
    session.insert(tasks).unwrap();
    session.perform("x", "completed");
    session.run("SELECT taskq.reset_group('g')");
    assert_eq!(report(&mut session, unique("n", json!("s"))), ["seed skipped seed"]);
    assert_eq!(report(&mut session, unique("n", json!("p"))), ["n inserted"]);
    session.run("SELECT taskq.delete_group('g')");
    assert_eq!(session.all::<String>("SELECT key FROM taskq.unique_key"), ["p"]);
}

#[test]
fn children_may_be_unique() {
    let db = Db::new();
    let mut session = db.connect();
    let key = json!({"key": "k", "states": ["pending"]});
    session.insert(unique("a", key.clone())).unwrap();
    let grant = session.own_one("x");
    let children =
        json!([{"id": "b", "action": "x", "unique": key}, {"id": "c", "action": "x", "unique": "other"}]);
    session.give_with("a", grant.token, "completed", &format!("children => '{children}'")).unwrap();
    assert_eq!([session.state("b"), session.state("c")], ["ready", "ready"]);
    // A bad token leaves no key behind.
    let stale =
        json!([{"task_id": "a", "token": grant.token, "children": [{"action": "x", "unique": "stale"}]}]);
    session.query("SELECT * FROM taskq.return_tasks($1::jsonb)", &[&stale]).unwrap();
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.unique_key"), 2);
}

#[test]
fn a_rolled_back_savepoint_takes_no_key() {
    let db = Db::new();
    let mut session = db.connect();
    session.run("BEGIN; SAVEPOINT s");
    session.insert(unique("a", json!("k"))).unwrap();
    session.run("ROLLBACK TO s");
    assert_eq!(report(&mut session, unique("b", json!("k"))), ["b inserted"]);
    assert_eq!(report(&mut session, unique("c", json!("k"))), ["b skipped b"], "within its own transaction");
    session.run("COMMIT");
    assert_eq!(session.state("b"), "ready");
}

#[test]
fn what_is_malformed_is_named() {
    let db = Db::new();
    let mut session = db.connect();
    for (key, word) in [
        (json!(1), "unique"),
        (json!(""), "empty"),
        (json!({"key": ""}), "empty"),
        (json!({"key": "k".repeat(1001)}), "1001"),
        (json!({"kye": "k"}), "kye"),
        (json!({"period": "often"}), "often"),
        (json!({"period": "-1 hour"}), "negative"),
        (json!({"period": "0"}), "zero"),
        (json!({"states": []}), "empty"),
        (json!({"states": ["waiting"]}), "waiting"),
        (json!({"on_conflict": "ignore"}), "ignore"),
        (json!({"max_wait": "1 hour"}), "max_wait"),
    ] {
        refused(&mut session, "TQ006", word, INSERT, &[&unique("a", key)]);
    }
    let error = session
        .simple_query("SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\", \"unique\": \"k\"}')");
    assert_eq!(sqlstate(&error.unwrap_err()), "TQ006");
    let error =
        session.simple_query("SELECT * FROM taskq.insert_tasks_report('[]', on_conflict => 'nothing')");
    assert_eq!(sqlstate(&error.unwrap_err()), "22023");
}

#[test]
fn a_hundred_thousand_unique_tasks_go_in_at_once() {
    let db = Db::new();
    let mut session = db.connect();
    let insert = |session: &mut Session, key: &str| -> i64 {
        session.one(&format!(
            "SELECT count(*) FROM taskq.insert_tasks((\
               SELECT jsonb_agg(jsonb_build_object('action', 'x', 'unique', {key})) FROM generate_series(1, 100000) i))"
        ))
    };
    assert_eq!(insert(&mut session, "'key' || i"), 100_000);
    assert_eq!(insert(&mut session, "'key' || i"), 0);
    let same = "jsonb_build_object('key', 'same', 'on_conflict', 'replace')";
    assert_eq!(insert(&mut session, same), 1);
    assert_eq!(insert(&mut session, same), 1);
    let count = "SELECT count(*) FROM taskq.tasks";
    assert_eq!(session.one::<i64>(count), 100_001);
    let some = "jsonb_build_object('key', 'key' || i % 10000, 'on_conflict', 'replace')";
    assert_eq!(insert(&mut session, some), 10_000, "key 0 is new");
    assert_eq!(session.one::<i64>(count), 100_002);
}
