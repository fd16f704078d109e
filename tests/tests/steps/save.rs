//! `save_step`: what is stored, for how long, and what is refused.

use serde_json::json;
use taskq_tests::session::AT_ONCE;
use taskq_tests::{Db, refused};

use crate::{save, steps};

#[test]
fn a_step_is_kept_once_and_keeps_its_first_result() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = session.own_one("x");
    assert_eq!(
        save(&mut session, &grant, "pay", Some(json!({"receipt": 7}))).unwrap(),
        Some(json!({"receipt": 7}))
    );
    assert_eq!(save(&mut session, &grant, "pay", Some(json!("other"))).unwrap(), Some(json!({"receipt": 7})));
    assert_eq!(save(&mut session, &grant, "pay", None).unwrap(), Some(json!({"receipt": 7})));
    save(&mut session, &grant, "mail", Some(json!(1.50))).unwrap();
    assert_eq!(steps(&mut session, "a"), ["1 pay 1 {\"receipt\": 7}", "2 mail 1 1.5"]);
    session.complete(&grant);
    assert_eq!(steps(&mut session, "a").len(), 2, "they are shown of settled tasks as well");
}

#[test]
fn no_result_and_json_null_come_back_as_null() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = session.own_one("x");
    assert_eq!(save(&mut session, &grant, "none", None).unwrap(), None);
    assert_eq!(save(&mut session, &grant, "null", Some(json!(null))).unwrap(), None);
    // A step without a result is saved all the same.
    assert_eq!(save(&mut session, &grant, "none", Some(json!(1))).unwrap(), None);
    assert_eq!(steps(&mut session, "a"), ["1 none 1", "2 null 1"]);
    // A JSON null within a result is kept.
    assert_eq!(save(&mut session, &grant, "in", Some(json!([null]))).unwrap(), Some(json!([null])));
}

#[test]
fn what_cannot_be_saved_is_refused() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y"}]));
    let (old, other) = (session.own_one("x"), session.own_one("y"));
    session.give_with("a", old.token, "pending", AT_ONCE).unwrap();
    let query = "SELECT taskq.save_step($1, $2, $3, $4, $5::text::interval)";
    let none = None::<serde_json::Value>;
    for (code, naming, id, token, step, duration) in [
        ("TQ001", "\"a\"", "a", old.token, "s", None),
        ("TQ001", "\"a\"", "a", other.token, "s", None),
        ("TQ003", "\"nix\"", "nix", old.token, "s", None),
        ("22023", "\"step\"", "b", other.token, "", None),
        ("22023", "\"step\"", "b", other.token, &"n".repeat(1001), None),
        ("22023", "\"lease\"", "b", other.token, "s", Some("-1 second")),
    ] {
        refused(&mut session, code, naming, query, &[&id, &token, &step, &none, &duration]);
    }
    for (naming, id, token, step) in [
        ("\"task_id\"", None, Some(other.token), Some("s")),
        ("\"token\"", Some("b"), None, Some("s")),
        ("\"step\"", Some("b"), Some(other.token), None),
    ] {
        refused(&mut session, "22004", naming, query, &[&id, &token, &step, &none, &None::<&str>]);
    }
    let long = "n".repeat(1000);
    save(&mut session, &other, &long, None).unwrap();
    let now = session.own_one("x");
    save(&mut session, &now, "s", None).unwrap();
    session.cancel(&["a"]).unwrap();
    refused(&mut session, "TQ001", "\"a\"", query, &[&"a", &now.token, &"s", &none, &None::<&str>]);
}

#[test]
fn the_lease_is_extended_in_the_same_call() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let grant = session.own_one_with("x", "lease => '10 minutes'");
    let call = "SELECT taskq.save_step($1, $2, 's', '1', $3::text::interval)";
    let deadline =
        "SELECT to_char(action_deadline AT TIME ZONE 'UTC', 'HH24:MI') || ' ' || actor_id FROM taskq.tasks";
    for (duration, expected) in [("20 minutes", "00:20 worker"), ("5 minutes", "00:05 worker")] {
        // The second time it is a step that was saved before.
        session.execute(call, &[&"a", &grant.token, &duration]).unwrap();
        assert_eq!(session.one::<String>(deadline), expected);
    }
    session.execute(call, &[&"a", &grant.token, &None::<&str>]).unwrap();
    assert_eq!(session.one::<String>(deadline), "00:05 worker", "without it nothing is extended");
    // Late, and not granted since.
    session.set_now(Some("2030-01-01 01:00:00Z"));
    session.run("SELECT taskq.maintain()");
    session.execute(call, &[&"a", &grant.token, &"5 minutes"]).unwrap();
    assert_eq!(session.one::<String>(deadline), "01:05 worker");
    assert_eq!(session.state("a"), "in-progress");
}

#[test]
fn it_is_kept_exactly_once_with_the_row_of_the_caller() {
    let (_db, [mut session]) = Db::connected();
    session.run("CREATE TABLE paid (task text)");
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let grant = session.own_one("x");
    for end in ["ROLLBACK", "COMMIT"] {
        session.run("BEGIN; INSERT INTO paid VALUES ('a')");
        save(&mut session, &grant, "pay", Some(json!(end))).unwrap();
        session.run(end);
    }
    assert_eq!(session.one::<i64>("SELECT count(*) FROM paid"), 1);
    assert_eq!(steps(&mut session, "a"), ["1 pay 1 \"COMMIT\""]);
}

#[test]
fn what_is_saved_after_a_savepoint_goes_with_it() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = session.own_one("x");
    session.run("BEGIN");
    save(&mut session, &grant, "one", Some(json!(1))).unwrap();
    session.run("SAVEPOINT s");
    save(&mut session, &grant, "two", Some(json!("lost"))).unwrap();
    session.run("ROLLBACK TO s");
    save(&mut session, &grant, "three", Some(json!(3))).unwrap();
    assert_eq!(save(&mut session, &grant, "two", Some(json!(2))).unwrap(), Some(json!(2)));
    session.run("COMMIT");
    assert_eq!(steps(&mut session, "a"), ["1 one 1 1", "2 three 1 3", "3 two 1 2"]);
}

#[test]
fn ten_thousand_steps_take_a_few_rows_each() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = session.own_one("x");
    session.run("BEGIN");
    let all = "SELECT count(taskq.save_step('a', $1, 'step ' || n, to_jsonb(n))) FROM generate_series(1, 10000) AS n";
    assert_eq!(session.query_one(all, &[&grant.token]).unwrap().get::<_, i64>(0), 10_000);
    let read = "SELECT (seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_xact_all_tables WHERE relid = 'taskq.step'::regclass";
    let read: i64 = session.one(read);
    assert!(read <= 20_000, "{read} rows were read: a save reads the last step, not all of them");
    session.run("COMMIT");
    let in_order =
        "SELECT bool_and(step = 'step ' || position AND result = to_jsonb(position)) FROM taskq.steps";
    assert!(session.one::<bool>(in_order));
    assert_eq!(session.one::<i32>("SELECT max(position) FROM taskq.steps"), 10_000);
    session.give_with("a", grant.token, "pending", AT_ONCE).unwrap();
    let object = "SELECT (SELECT count(*) FROM jsonb_object_keys(steps)) FROM taskq.own_tasks('w', 1, '{x}', with_steps => true)";
    assert_eq!(session.one::<i64>(object), 10_000);
}
