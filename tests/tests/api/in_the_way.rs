//! `TQ002` says how the task stands that is in the way: a producer that makes ids from business keys meets, as a rule,
//! one that is long done and only kept.

use serde_json::json;
use taskq_tests::{Db, Progress, refused};

#[test]
fn the_error_of_an_id_in_use_says_how_its_task_stands() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session
        .insert(json!([
            {"id": "done", "action": "d", "retention": "7 days"}, {"id": "failed", "action": "f", "retention": "1 day"},
            {"id": "for ever", "action": "e", "spontaneous": true}, {"id": "held", "action": "h"},
            {"id": "ready", "action": "r"}, {"id": "blocked", "action": "b", "depends_on": ["ready"]},
            {"id": "later", "action": "l", "delay": "1 hour"},
        ]))
        .unwrap();
    session.run("SET timezone = 'UTC'");
    session.perform("d", "completed");
    session.perform("f", "aborted");
    session.own_one("h");
    session.run("SET taskq.retention = '-1'; SELECT taskq.insert_task('kept', 'k', spontaneous => true)");
    session.set_now(Some("2030-01-01 00:03:10Z"));
    for (id, says, hint) in [
        ("done", "It completed 3 minutes ago and is kept until 2030-01-08 00:00:00+00.", "unique_by"),
        ("failed", "It was aborted 3 minutes ago and is kept until 2030-01-02 00:00:00+00.", "unique_by"),
        ("kept", "It completed 3 minutes ago and is kept for ever.", "unique_by"),
        ("held", "It is in-progress, owned by \"worker\".", "replace_tasks"),
        ("ready", "It is ready.", "replace_tasks"),
        ("blocked", "It is blocked.", "replace_tasks"),
        ("later", "It is scheduled for 2030-01-01 01:00:00+00.", "replace_tasks"),
    ] {
        let error = refused(&mut session, "TQ002", id, "SELECT taskq.insert_task($1, 'x')", &[&id]);
        assert_eq!(error.detail(), Some(says), "{id}");
        assert!(
            error.hint().unwrap().contains(hint) && error.hint().unwrap().contains("on_conflict"),
            "{error:?}"
        );
    }
    let tasks =
        json!([{"id": "new", "action": "x"}, {"id": "ready", "action": "x"}, {"id": "done", "action": "x"}]);
    let error = refused(&mut session, "TQ002", "", "SELECT taskq.insert_tasks($1)", &[&tasks]);
    assert!(error.detail().unwrap().ends_with(" 1 more tasks of this call exist already."), "{error:?}");
}

#[test]
fn the_error_of_a_unique_key_in_use_says_how_its_holder_stands() {
    let (_db, [mut session]) = Db::connected();
    let unique = json!({"key": "k", "on_conflict": "error"});
    session.insert(json!([{"id": "a", "action": "x", "unique_by": unique.clone()}])).unwrap();
    session.own_one("x");
    let insert = "SELECT taskq.insert_tasks($1)";
    let again = json!([{"id": "b", "action": "x", "unique_by": unique.clone()}]);
    let error = refused(&mut session, "TQ002", "\"a\"", insert, &[&again]);
    assert!(error.detail().unwrap().contains("It is in-progress, owned by \"worker\"."), "{error:?}");
    let twice = json!([
        {"id": "c", "action": "y", "unique_by": unique.clone()}, {"id": "d", "action": "y", "unique_by": unique},
    ]);
    let error = refused(&mut session, "TQ002", "\"c\"", insert, &[&twice]);
    assert!(error.detail().unwrap().contains("another element of this call"), "{error:?}");
}

#[test]
fn an_insert_that_waited_for_another_gets_the_same_error() {
    let (_db, [mut first, second, mut watcher]) = Db::connected();
    first.run("BEGIN; SELECT taskq.insert_task('a', 'x')");
    let other = second.background(|s| s.query("SELECT taskq.insert_task('a', 'x')", &[]).map(|_| ()));
    assert_eq!(other.settle_down(&mut watcher), Progress::Blocked);
    first.run("COMMIT");
    let error = other.join().1.expect_err("the id is taken");
    assert_eq!(error.as_db_error().unwrap().detail(), Some("It is ready."));
}
