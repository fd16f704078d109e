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
    let db = Db::new();
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let grant = session.own_one_with("x", "max_duration => '1 minute'");
    session.set_now(Some("2030-01-01 01:00:00Z"));
    session.run("SELECT taskq.maintain()");
    refused(&mut session, "TQ005", "a", "SELECT taskq.update_tasks('{a}', body => 'new')", &[]);
    session.complete(&grant);
}

#[test]
fn arguments_that_make_no_sense() {
    let db = Db::new();
    let mut session = queue(&db);
    for (code, naming, arguments) in [
        ("22023", "delay", "'{fine}', delay => '1 hour', not_before => '2030-01-01'"),
        ("22023", "delay", "'{fine}', delay => '-1 hour'"),
        ("22023", "max_tries", "'{fine}', max_tries => 0"),
        ("22023", "max_duration", "'{fine}', max_duration => '-1 hour'"),
        ("22023", "metadata", "'{fine}', metadata => '[1]'"),
        ("22004", "task_ids", "NULL, priority => 1"),
        ("22004", "task_ids", "ARRAY['fine', NULL], priority => 1"),
    ] {
        refused(&mut session, code, naming, &format!("SELECT taskq.update_tasks({arguments})"), &[]);
    }
    assert_eq!(session.one::<i64>("SELECT taskq.update_tasks('{}', priority => 1)"), 0);
}
