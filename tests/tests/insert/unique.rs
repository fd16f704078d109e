//! Unique tasks: which task holds a key, and for how long; what a call says of its tasks. One session; several are in
//! `unique_races`.

use serde_json::{Value, json};
use taskq_tests::{Db, Session, refused, sqlstate};

/// What `insert_tasks_report` says, as `id outcome existing`.
pub fn report(session: &mut Session, tasks: Value) -> Vec<String> {
    let query = "SELECT concat_ws(' ', task_id, outcome, existing_id) FROM taskq.insert_tasks_report($1)";
    session.query(query, &[&tasks]).unwrap().iter().map(|row| row.get(0)).collect()
}

const INSERT: &str = "SELECT * FROM taskq.insert_tasks($1)";

/// A task with this id and a key.
pub fn unique(id: &str, key: Value) -> Value {
    json!([{"id": id, "action": "x", "unique_by": key}])
}

/// Sets the clock of the session to this time of a day.
pub fn at(session: &mut Session, time: &str) {
    session.set_now(Some(&format!("2030-01-01 {time}Z")));
}

#[test]
fn a_key_is_held_until_its_task_settles() {
    let (_db, [mut session]) = Db::connected();
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
    let (_db, [mut session]) = Db::connected();
    let tasks = json!([
        {"id": "a", "action": "x", "unique_by": "k"}, {"id": "b", "action": "x", "unique_by": "k"},
        {"id": "c", "action": "x"}, {"id": "d", "action": "other", "unique_by": "k"},
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
    let (_db, [mut session]) = Db::connected();
    let long = "x".repeat(5000);
    let task = |body: Value| json!({"action": "x", "unique_by": true, "body": body});
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
    let (_db, [mut session]) = Db::connected();
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
    let later = json!([{"id": "e", "action": "x", "delay": "30 minutes", "unique_by": {"key": "l", "period": "1 hour"}}]);
    assert_eq!(report(&mut session, later), ["e inserted"]);
    at(&mut session, "03:29:59");
    assert_eq!(report(&mut session, unique("f", json!({"key": "l", "period": "1 hour"}))), ["e skipped e"]);
    at(&mut session, "03:30");
    assert_eq!(report(&mut session, unique("f", json!({"key": "l", "period": "1 hour"}))), ["f inserted"]);
    session.set_now(None);
}

#[test]
fn retention_waits_for_the_end_of_the_period() {
    let (_db, [mut session]) = Db::connected();
    let insert = |session: &mut Session, id: &str| {
        let key = json!({"key": "k", "period": "1 hour"});
        report(session, json!([{"id": id, "action": "x", "retention": "0", "unique_by": key}]))
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
    let (_db, [mut session]) = Db::connected();
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
        {"id": "m", "action": "y", "unique_by": done.clone()}, {"id": "n", "action": "y", "unique_by": done.clone()},
    ]);
    assert_eq!(report(&mut session, both), ["m inserted", "n inserted"]);
    session.perform("y", "completed");
    let third = json!([{"id": "o", "action": "y", "unique_by": done}]);
    assert_eq!(report(&mut session, third.clone()), ["o inserted"], "n was the last, and it is pending");
    session.cancel(&["n"]).unwrap();
    session.perform("y", "completed");
    let fourth = json!([{"id": "p", "action": "y", "unique_by": {"key": "d"}}]);
    assert_eq!(report(&mut session, fourth), ["o skipped o"]);
}

#[test]
fn error_refuses_the_whole_call() {
    let (_db, [mut session]) = Db::with_tasks(unique("a", json!("k")));
    let key = json!({"key": "k", "on_conflict": "error"});
    let tasks = json!([{"id": "n", "action": "x"}, {"id": "b", "action": "x", "unique_by": key.clone()}]);
    let error = refused(&mut session, "TQ002", "\"k\"", INSERT, &[&tasks]);
    assert!(error.message().contains("\"a\""), "{error:?}");
    let twice = json!([
        {"id": "n", "action": "y", "unique_by": key.clone()}, {"id": "m", "action": "y", "unique_by": key},
    ]);
    assert_eq!(sqlstate(&session.insert(twice).unwrap_err()), "TQ002");
    assert_eq!(
        session.one::<i64>("SELECT count(*) FROM taskq.unique_key"),
        1,
        "the refused call left no key"
    );
}

#[test]
fn what_is_malformed_is_named() {
    let (_db, [mut session]) = Db::connected();
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
        .simple_query("SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\", \"unique_by\": \"k\"}')");
    assert_eq!(sqlstate(&error.unwrap_err()), "TQ006");
    let error =
        session.simple_query("SELECT * FROM taskq.insert_tasks_report('[]', on_conflict => 'nothing')");
    assert_eq!(sqlstate(&error.unwrap_err()), "22023");
}
