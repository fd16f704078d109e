//! What cannot be changed, and calls that make no sense: nothing changes then, not even the others of the call.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

fn queue(db: &Db) -> Session {
    let mut session = db.connect();
    session
        .insert(json!([{"id": "fine", "action": "f"}, {"id": "held", "action": "h"}, {"id": "done", "action": "d"},
                       {"id": "lost", "action": "l"}]))
        .unwrap();
    session.own_one("h");
    session.perform("d", "completed");
    session.perform("l", "aborted");
    session
}

#[test]
fn what_has_begun_or_ended_and_what_is_not_there() {
    let db = Db::new();
    let mut session = queue(&db);
    for (code, id) in [("TQ005", "held"), ("TQ005", "done"), ("TQ005", "lost"), ("TQ003", "nothing")] {
        for change in ["body => 'new'", "priority => 1", "delay => '0'"] {
            let query = format!("SELECT taskq.update_tasks('{{fine,{id}}}', {change})");
            refused(&mut session, code, id, &query, &[]);
        }
    }
    let detail =
        refused(&mut session, "TQ005", "done", "SELECT taskq.update_tasks('{done}', priority => 1)", &[]);
    assert!(detail.detail().unwrap().contains("completed"), "{detail:?}");
}

#[test]
fn a_task_whose_deadline_has_passed_is_still_its_actors() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let grant = session.own_one_with("x", "lease => '1 minute'");
    session.set_now(Some("2030-01-01 01:00:00Z"));
    session.run("SELECT taskq.maintain()");
    refused(&mut session, "TQ005", "a", "SELECT taskq.update_tasks('{a}', body => 'new')", &[]);
    session.complete(&grant);
}

/// It may never be returned: only a call of own_tasks for its action ends the try. On wrong code the hint is to wait.
#[test]
fn no_hint_says_to_wait_for_a_task_whose_deadline_has_passed() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "a", "action": "x", "group_id": "g"}])).unwrap();
    session.own_one_with("x", "lease => '1 minute'");
    for (call, waits) in [
        ("update_tasks('{a}', body => 'new')", "Wait"),
        ("delete_tasks('{a}')", "Wait"),
        ("delete_group('g')", "Wait"),
        ("replace_tasks('[{\"id\": \"a\", \"action\": \"x\"}]')", "Wait"),
        ("complete_task('a')", "Its actor will return it"),
    ] {
        let query = format!("SELECT taskq.{call}");
        session.set_now(Some("2030-01-01 00:00:30Z"));
        let error = refused(&mut session, "TQ005", "a", &query, &[]);
        assert!(error.hint().unwrap().starts_with(waits), "{call}: {error:?}");
        session.set_now(Some("2030-01-01 01:00:00Z"));
        for looked_after in [false, true] {
            if looked_after {
                session.run("SELECT taskq.maintain()");
            }
            let error = refused(&mut session, "TQ005", "a", &query, &[]);
            assert_eq!(
                error.detail(),
                Some("The task is in progress, and its deadline has passed."),
                "{call}"
            );
            assert!(error.hint().unwrap().starts_with("Cancel it, or let a worker ask"), "{call}: {error:?}");
        }
    }
}

#[test]
fn arguments_that_make_no_sense() {
    let db = Db::new();
    let mut session = queue(&db);
    for (code, naming, arguments) in [
        ("22023", "delay", "'{fine}', delay => '1 hour', not_before => '2030-01-01'"),
        ("22023", "delay", "'{fine}', delay => '-1 hour'"),
        ("22023", "max_tries", "'{fine}', max_tries => 0"),
        ("22023", "lease", "'{fine}', lease => '-1 hour'"),
        ("22023", "metadata", "'{fine}', metadata => '[1]'"),
        ("22004", "task_ids", "NULL, priority => 1"),
        ("22004", "task_ids", "ARRAY['fine', NULL], priority => 1"),
    ] {
        refused(&mut session, code, naming, &format!("SELECT taskq.update_tasks({arguments})"), &[]);
    }
    assert_eq!(session.one::<i64>("SELECT taskq.update_tasks('{}', priority => 1)"), 0);
}
