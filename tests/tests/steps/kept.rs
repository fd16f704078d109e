//! For how long steps are kept, and with what they go.

use serde_json::json;
use taskq_tests::session::AT_ONCE;
use taskq_tests::{Db, Session};

use crate::{save, steps};

const ROWS: &str = "SELECT count(*) FROM taskq.step";

/// Task `a` with two steps, and its grant given back.
fn with_steps(session: &mut Session) {
    session.insert(json!([{"id": "a", "action": "x", "group_id": "g"}])).unwrap();
    let grant = session.own_one("x");
    save(session, &grant, "one", Some(json!(1))).unwrap();
    save(session, &grant, "two", Some(json!(2))).unwrap();
    session.give_with("a", grant.token, "pending", AT_ONCE).unwrap();
}

#[test]
fn they_outlive_tries_and_retries() {
    let (_db, [mut session]) = Db::connected();
    with_steps(&mut session);
    let grant = session.own_one("x");
    save(&mut session, &grant, "three", None).unwrap();
    session.give("a", grant.token, "aborted").unwrap();
    session.run("SELECT taskq.retry_tasks('{a}')");
    assert_eq!(steps(&mut session, "a"), ["1 one 1 1", "2 two 1 2", "3 three 2"]);
    let grant = session.own_one("x");
    save(&mut session, &grant, "four", None).unwrap();
    assert_eq!(steps(&mut session, "a")[3], "4 four 1", "the tries of the retry count from 1");
    session.run("SELECT taskq.update_tasks('{a}', priority => 3, if_started => 'skip')");
    session.complete(&grant);
    assert_eq!(steps(&mut session, "a").len(), 4);
}

#[test]
fn an_update_leaves_them_alone() {
    let (_db, [mut session]) = Db::connected();
    with_steps(&mut session);
    session.run("SELECT taskq.update_tasks('{a}', priority => 3, body => 'new')");
    assert_eq!(steps(&mut session, "a").len(), 2);
}

#[test]
fn they_go_with_the_task_and_when_it_starts_anew() {
    for (call, settled) in [
        ("SELECT taskq.delete_tasks('{a}')", false),
        ("SELECT taskq.delete_tasks('{a}')", true),
        ("SELECT taskq.delete_group('g')", false),
        ("SELECT taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"x\"}]')", false),
        ("SELECT taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"x\"}]')", true),
        ("SELECT taskq.reset_group('g')", false),
        ("SELECT taskq.reset_group('g')", true),
        ("SELECT taskq.rerun_tasks('{a}')", true),
    ] {
        let (_db, [mut session]) = Db::connected();
        with_steps(&mut session);
        if settled {
            session.perform("x", "completed");
        }
        assert_eq!(session.one::<i64>(ROWS), 2);
        session.run(call);
        assert_eq!(session.one::<i64>(ROWS), 0, "{call}, settled: {settled}");
    }
}

#[test]
fn a_reset_in_progress_leaves_none_behind() {
    let (_db, [mut session]) = Db::connected();
    with_steps(&mut session);
    let grant = session.own_one("x");
    session.run("SELECT taskq.reset_group('g')");
    assert_eq!(session.one::<i64>(ROWS), 0);
    assert!(save(&mut session, &grant, "late", None).is_err());
    let grant = session.own_one("x");
    save(&mut session, &grant, "one", Some(json!("anew"))).unwrap();
    assert_eq!(steps(&mut session, "a"), ["1 one 1 \"anew\""]);
}

#[test]
fn they_go_with_the_retention_of_the_task() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    with_steps(&mut session);
    session.perform("x", "completed");
    session.set_now(Some("2030-03-01 00:00:00Z"));
    session.run("SELECT taskq.maintain()");
    assert_eq!((session.state("a").as_str(), session.one::<i64>(ROWS)), ("gone", 0));
}

#[test]
fn what_a_blocked_task_is_deleted_with_takes_its_steps_along() {
    let (_db, [mut session]) = Db::connected();
    with_steps(&mut session);
    session.insert(json!([{"id": "b", "action": "y"}])).unwrap();
    session.depend_on("b", "a").unwrap();
    session.delete(&["b"]).unwrap();
    assert_eq!((session.state("a").as_str(), session.one::<i64>(ROWS)), ("gone", 0));
}

#[test]
fn a_step_without_a_task_is_named_by_the_check() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "INSERT INTO taskq.step (task_no, position, name, num_try, saved_at) VALUES (5, 1, 's', 1, now())",
    );
    assert_eq!(session.broken(), ["(\"row without a task\",,\"step 5\")"]);
    session.run("DELETE FROM taskq.step");
}
