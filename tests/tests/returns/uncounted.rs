//! `count_try => false`: a task that comes back without using up a try.

use serde_json::{Value, json};
use taskq_tests::{Db, Session};
use uuid::Uuid;

const UNCOUNTED: &str = "status => 'stopping', count_try => false";

/// Tries and uncounted returns.
fn counts(session: &mut Session, id: &str) -> (i32, i32) {
    let query = "SELECT num_tries, num_releases FROM taskq.tasks WHERE id = $1";
    let row = session.query_one(query, &[&id]).unwrap();
    (row.get(0), row.get(1))
}

/// The tries of a task, in their order: number, outcome, status.
fn attempts(session: &mut Session, id: &str) -> Vec<String> {
    let query = "SELECT concat_ws(' ', num_try, outcome, status) FROM taskq.attempts WHERE task_id = $1 \
                  ORDER BY started_at, ended_at";
    session.query(query, &[&id]).unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn it_uses_up_no_try_and_waits_for_no_back_off() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x", "max_tries": 1}, {"id": "b", "action": "y", "depends_on": ["a"]}]),
    );
    for n in 1..=3 {
        let grant = session.own_one("x");
        assert_eq!(grant.num_tries, 1);
        assert_eq!(session.give_with("a", grant.token, "pending", UNCOUNTED).unwrap(), "pending");
        let task = session.task("a").unwrap();
        assert_eq!(
            (task.state.as_str(), task.status.as_deref(), task.actor_id),
            ("ready", Some("stopping"), None)
        );
        assert_eq!(counts(&mut session, "a"), (0, n));
        let again = session.give_with("a", grant.token, "pending", UNCOUNTED).unwrap_err();
        assert_eq!(again.code().unwrap().code(), "TQ001");
    }
    assert_eq!(attempts(&mut session, "a"), ["1 released stopping"; 3]);
    assert_eq!(session.state("b"), "blocked");
    assert!(
        session.all::<String>("SELECT * FROM taskq.why('a')")[0]
            .contains("3 times without the try being counted: stopping")
    );
    // What counts is counted as ever.
    let grant = session.own_one("x");
    assert_eq!(session.give("a", grant.token, "pending").unwrap(), "aborted");
    assert_eq!(counts(&mut session, "a"), (1, 3));
    // A retry begins anew.
    session.run("SELECT taskq.retry_tasks('{a}')");
    assert_eq!(counts(&mut session, "a"), (0, 0));
    assert_eq!(attempts(&mut session, "a").len(), 4);
}

#[test]
fn a_delay_holds_and_a_priority_is_kept() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x", "priority": 1}, {"id": "b", "action": "x"}, {"id": "c", "action": "x", "priority": 1}]),
    );
    let a = session.own_one("x");
    let later = "retry_after => '1 hour', count_try => false";
    assert_eq!(session.give_with("a", a.token, "pending", later).unwrap(), "pending");
    assert_eq!((session.state("a").as_str(), counts(&mut session, "a")), ("scheduled", (0, 1)));
    let c = session.own_one("x");
    assert_eq!(c.task_id, "c");
    session.run("SELECT taskq.update_tasks('{a}', delay => '0')");
    session.give_with("c", c.token, "pending", "count_try => false").unwrap();
    let order: Vec<String> = session.own("w", 9, &["x"]).unwrap().into_iter().map(|g| g.task_id).collect();
    assert_eq!(order, ["a", "c", "b"], "at the end of its priority");
}

#[test]
fn it_goes_with_pending_only() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let token = session.own_one("x").token;
    let element = |code: Option<&str>, count: Value| json!([{"task_id": "a", "token": token, "status_code": code, "count_try": count}]);
    for code in ["completed", "aborted"] {
        let refused = session.give_with("a", token, code, "count_try => false").unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "22023");
        let calls = [
            format!("SELECT * FROM taskq.return_tasks('{{a}}', '{{{token}}}', '{code}', count_try => false)"),
            format!("SELECT * FROM taskq.return_tasks('{}'::jsonb)", element(Some(code), json!(false))),
            format!(
                "SELECT * FROM taskq.return_and_own_tasks('w', '{}'::jsonb, 1, '{{x}}')",
                element(Some(code), json!(false))
            ),
            format!("SELECT * FROM taskq.return_tasks('{}'::jsonb)", element(None, json!(false))),
        ];
        for call in calls {
            let refused = session.query(&call, &[]).unwrap_err();
            assert_eq!(refused.code().unwrap().code(), "22023", "{call}");
        }
    }
    let wrong =
        format!("SELECT * FROM taskq.return_tasks('{}'::jsonb)", element(Some("pending"), json!("no")));
    assert_eq!(session.query(&wrong, &[]).unwrap_err().code().unwrap().code(), "TQ006");
    assert_eq!(session.state("a"), "in-progress");
    // NULL is what is not said.
    assert_eq!(session.give_with("a", token, "completed", "count_try => NULL").unwrap(), "completed");
}

#[test]
fn every_form_has_it_each_for_itself() {
    let (_db, [mut session]) = Db::connected();
    let tasks: Vec<Value> =
        (0..6).map(|n| json!({"id": format!("t{n}"), "action": "x", "max_tries": 1})).collect();
    session.insert(json!(tasks)).unwrap();
    let tokens: Vec<Uuid> = session.own("w", 6, &["x"]).unwrap().iter().map(|g| g.token).collect();
    let arrays = format!(
        "SELECT count(*) FROM taskq.return_tasks('{{t0,t1}}', '{{{},{}}}', 'pending', count_try => false) WHERE status_code = 'pending'",
        tokens[0], tokens[1]
    );
    assert_eq!(session.one::<i64>(&arrays), 2);
    let of = |n: usize, count: Value| json!({"task_id": format!("t{n}"), "token": tokens[n], "status_code": "pending", "count_try": count, "retry_after": "0"});
    let returns = json!([of(2, json!(false)), of(3, json!(true)), of(4, Value::Null)]);
    let codes: Vec<String> =
        session.all(&format!("SELECT status_code::text FROM taskq.return_tasks('{returns}'::jsonb)"));
    assert_eq!(codes, ["pending", "aborted", "aborted"]);
    // What comes back can be owned by the same call.
    let returns = json!([of(5, json!(false))]);
    let owned =
        format!("SELECT task_id FROM taskq.return_and_own_tasks('w', '{returns}'::jsonb, 9, '{{x}}')");
    assert_eq!(session.all::<String>(&owned), ["t0", "t1", "t2", "t5"]);
    assert_eq!(counts(&mut session, "t5"), (1, 1));
}

#[test]
fn a_deadline_that_has_passed_is_no_hindrance() {
    let (_db, [mut session]) = Db::connected();
    let at =
        |session: &mut Session, minute: i32| session.set_now(Some(&format!("2030-01-01 00:{minute:02}:00Z")));
    at(&mut session, 0);
    session.insert(json!([{"id": "a", "action": "x", "max_tries": 2}])).unwrap();
    let a = session.own_one_with("x", "lease => '1 minute'");
    at(&mut session, 2);
    // No call has looked yet; then one has.
    session.run("BEGIN");
    assert_eq!(session.give_with("a", a.token, "pending", UNCOUNTED).unwrap(), "pending");
    assert_eq!(counts(&mut session, "a"), (0, 1));
    session.run("ROLLBACK; SELECT taskq.maintain()");
    assert_eq!(attempts(&mut session, "a"), ["1 timeout"]);
    assert_eq!(session.give_with("a", a.token, "pending", UNCOUNTED).unwrap(), "pending");
    assert_eq!(counts(&mut session, "a"), (0, 1));
    assert_eq!(attempts(&mut session, "a"), ["1 released stopping"], "which tells more");
    // Once another worker was granted it, it is too late.
    let a = session.own_one_with("x", "lease => '1 minute'");
    at(&mut session, 4);
    let b = session.own_one_with("x", "lease => '1 minute'");
    assert_eq!(b.num_tries, 2);
    let late = session.give_with("a", a.token, "pending", UNCOUNTED).unwrap_err();
    assert_eq!(late.code().unwrap().code(), "TQ001");
    assert_eq!(session.give_with("a", b.token, "pending", UNCOUNTED).unwrap(), "pending");
    assert_eq!(counts(&mut session, "a"), (1, 2));
}

#[test]
fn what_it_held_is_free_and_its_rider_goes_on() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_action('x', max_concurrency => 1, max_per_group => 1)");
    let keyed =
        |id: &str| json!({"id": id, "action": "x", "merge_key": "k", "group_id": "g", "max_tries": 1});
    session.insert(json!([keyed("a"), keyed("b")])).unwrap();
    let a = session.own_one("x");
    assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
    session.give_with("a", a.token, "pending", UNCOUNTED).unwrap();
    assert_eq!(session.broken(), Vec::<String>::new());
    let next = session.own_one("x");
    assert_eq!(next.num_tries, 1);
    session.complete(&next);
    assert_eq!((session.state("a").as_str(), session.state("b").as_str()), ("completed", "completed"));
}

/// What was said with an uncounted return is not the status of how it ended.
#[test]
fn what_was_said_goes_when_it_completes_without_a_try() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let a = session.own_one("x");
    session.give_with("a", a.token, "pending", UNCOUNTED).unwrap();
    session.run("SELECT taskq.complete_task('a')");
    assert_eq!(session.task("a").unwrap().status, None);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.progress"), 0);
}

/// A task may come back so any number of times: the history is bounded, and the number is right.
#[test]
fn the_history_is_bounded_and_the_number_is_exact() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x", "max_tries": 400}]));
    let mut rounds = |rounds: usize, arguments: &str| {
        for _ in 0..rounds {
            let grant = session.own_one("x");
            session.give_with("a", grant.token, "pending", arguments).unwrap();
        }
        (counts(&mut session, "a"), attempts(&mut session, "a").len())
    };
    assert_eq!(rounds(130, UNCOUNTED), ((0, 130), 100));
    assert_eq!(
        rounds(120, "retry_after => '0'"),
        ((120, 130), 100),
        "the released ones went with the first tries"
    );
    assert_eq!(rounds(5, UNCOUNTED), ((120, 135), 105));
}
