//! One task: every code, every optional argument of the core, every wrong token.

use serde_json::json;
use taskq_tests::{Db, refused, sqlstate};

#[test]
fn the_default_code_is_completed() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = session.own_one("x");
    let code: String =
        session.query_one("SELECT taskq.return_task('a', $1)::text", &[&grant.token]).unwrap().get(0);
    assert_eq!(code, "completed");
}

#[test]
fn status_and_result_are_kept() {
    let (_db, [mut session]) = Db::connected();
    for (id, code) in [("a", "completed"), ("b", "aborted")] {
        session.insert(json!([{"id": id, "action": "x"}])).unwrap();
        let grant = session.own_one("x");
        let arguments = "status => 'näheres dazu', result => '{\"rows\": [1, 2, null]}'";
        session.give_with(id, grant.token, code, arguments).unwrap();
        let settled = session.wait(id, "0").unwrap().unwrap();
        assert_eq!(settled.status_code, code);
        assert_eq!(settled.status.as_deref(), Some("näheres dazu"));
        assert_eq!(settled.result, Some(json!({"rows": [1, 2, null]})));
    }
}

#[test]
fn a_result_of_a_megabyte_is_kept() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = session.own_one("x");
    let result = json!((0..150_000).collect::<Vec<i32>>());
    session.query("SELECT taskq.return_task('a', $1, result => $2)", &[&grant.token, &result]).unwrap();
    assert_eq!(session.wait("a", "0").unwrap().unwrap().result, Some(result));
}

#[test]
fn retry_after_schedules_the_next_try() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let grant = session.own_one("x");
    assert_eq!(
        session.give_with("a", grant.token, "pending", "retry_after => '5 minutes'").unwrap(),
        "pending"
    );
    assert_eq!(session.state("a"), "scheduled");
    session.set_now(Some("2030-01-01 00:04:59Z"));
    assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
    session.set_now(Some("2030-01-01 00:05:01Z"));
    assert_eq!(session.own_one("x").num_tries, 2);
}

#[test]
fn retry_after_zero_is_at_once() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = session.own_one("x");
    session.give_with("a", grant.token, "pending", "retry_after => '0'").unwrap();
    assert_eq!(session.own_one("x").num_tries, 2);
}

#[test]
fn retry_after_does_not_save_an_exhausted_task() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x", "max_tries": 1}]));
    let grant = session.own_one("x");
    assert_eq!(
        session.give_with("a", grant.token, "pending", "retry_after => '5 minutes'").unwrap(),
        "aborted"
    );
    assert_eq!(session.state("a"), "aborted");
}

#[test]
fn the_status_of_a_task_given_back_is_shown() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let grant = session.own_one("x");
    session.give_with("a", grant.token, "pending", "status => 'server is down', retry_after => '0'").unwrap();
    assert_eq!(session.task("a").unwrap().status.as_deref(), Some("server is down"));
}

/// Why the token is bad is what an operator who finds that in a log wants to know.
#[test]
fn a_refused_token_tells_how_the_task_stands() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    for (ends, expected) in [
        ("SELECT taskq.return_task('a', '$token')", "The task completed 5 minutes ago."),
        (
            "SELECT taskq.return_task('a', '$token', 'aborted', 'no such file')",
            "The task was aborted 5 minutes ago: \"no such file\".",
        ),
        ("SELECT taskq.return_task('a', '$token', 'pending', retry_after => '0')", "The task is ready."),
        (
            "SELECT taskq.return_task('a', '$token', 'pending', retry_after => '1 day')",
            "The task is scheduled for 2030-01-02 00:00:00+00.",
        ),
        (
            "SELECT taskq.cancel_tasks('{a}', 'not wanted')",
            "The task was aborted 5 minutes ago: \"not wanted\".",
        ),
        ("SELECT taskq.reset_group('g')", "The task is ready."),
        (
            "SET taskq.now = '2030-01-01 00:01:01Z'; SELECT taskq.own_tasks('bob', 1, '{x}', '1 day')",
            "The task is in-progress, owned by \"bob\".",
        ),
    ] {
        session.run("SET taskq.now = '2030-01-01 00:00:00Z'; SET timezone = 'UTC'");
        session.insert(json!([{"id": "a", "action": "x", "group_id": "g", "seed": true}])).unwrap();
        let grant = session.own_one_with("x", "lease => '1 minute'");
        let token = grant.token.to_string();
        session.run(&ends.replace("$token", &token));
        session.run("SET taskq.now = '2030-01-01 00:05:00Z'");
        for call in [
            format!("SELECT taskq.return_task('a', '{token}')"),
            format!("SELECT taskq.report_status('a', '{token}', 'here')"),
        ] {
            let error = refused(&mut session, "TQ001", "\"a\"", &call, &[]);
            assert_eq!(
                error.detail(),
                Some(format!("It is not the last one granted. {expected}").as_str()),
                "{ends}"
            );
        }
        session.run("SELECT taskq.cancel_tasks('{a}'); SELECT taskq.delete_tasks('{a}')");
    }
}

#[test]
fn a_token_does_not_outlive_a_task_deleted_and_inserted_again() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    let old = session.own_one("x");
    session.cancel(&["a"]).unwrap();
    session.delete(&["a"]).unwrap();
    assert_eq!(sqlstate(&session.give("a", old.token, "completed").unwrap_err()), "TQ003");
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let new = session.own_one("x");
    assert_eq!(new.num_tries, 1);
    assert_eq!(sqlstate(&session.give("a", old.token, "completed").unwrap_err()), "TQ001");
    session.complete(&new);
}
