//! `own_tasks` never waits for another transaction's open grant, return or insert: one slow worker must not stop the
//! others. A wait would run into the statement timeout here.

use serde_json::json;
use taskq_tests::{Db, Session};

fn owned_at_once(session: &mut Session, actions: &[&str]) -> Vec<String> {
    session.run("SET statement_timeout = '5s'");
    session.own("w", 10, actions).unwrap().into_iter().map(|grant| grant.task_id).collect()
}

#[test]
fn an_open_grant_is_passed_over() {
    let (_db, [mut open, mut other]) = Db::with_tasks(
        json!([{"id": "1", "action": "x"}, {"id": "2", "action": "x"}, {"id": "3", "action": "x"}]),
    );
    open.run("BEGIN");
    open.own_one("x");
    assert_eq!(owned_at_once(&mut other, &["x"]), ["2", "3"]);
    open.run("ROLLBACK");
    assert_eq!(owned_at_once(&mut other, &["x"]), ["1"]);
}

#[test]
fn an_open_takeover_is_passed_over() {
    let (_db, [mut open, mut other]) = Db::connected();
    for session in [&mut open, &mut other] {
        session.set_now(Some("2030-01-01 00:00:00Z"));
    }
    open.insert(json!([{"id": "1", "action": "x"}])).unwrap();
    open.own_one_with("x", "lease => '1 minute'");
    other.insert(json!([{"id": "2", "action": "x"}])).unwrap();
    for session in [&mut open, &mut other] {
        session.set_now(Some("2030-01-01 00:02:00Z"));
    }
    open.run("BEGIN");
    assert_eq!(open.own("w", 10, &["x"]).unwrap().len(), 2);
    assert!(owned_at_once(&mut other, &["x"]).is_empty());
    open.run("ROLLBACK");
    assert_eq!(owned_at_once(&mut other, &["x"]).len(), 2);
}

#[test]
fn an_open_abort_of_an_exhausted_task_is_passed_over() {
    let (_db, [mut open, mut other]) = Db::connected();
    for session in [&mut open, &mut other] {
        session.set_now(Some("2030-01-01 00:00:00Z"));
    }
    let tasks = json!([
        {"id": "1", "action": "x", "max_tries": 1},
        {"id": "2", "action": "y", "depends_on": [{"id": "1", "condition": "settled"}]},
    ]);
    open.insert(tasks).unwrap();
    open.own_one_with("x", "lease => '1 minute'");
    other.insert(json!([{"id": "3", "action": "x"}])).unwrap();
    for session in [&mut open, &mut other] {
        session.set_now(Some("2030-01-01 00:02:00Z"));
    }
    open.run("BEGIN");
    open.own("w", 0, &["x"]).unwrap();
    open.own("w", 1, &["unrelated"]).unwrap();
    assert_eq!(owned_at_once(&mut other, &["x", "y"]), ["3"]);
    open.run("ROLLBACK");
    other.own("w", 1, &["unrelated"]).unwrap();
    assert_eq!(owned_at_once(&mut other, &["x", "y"]), ["2"]);
}

#[test]
fn an_open_return_is_passed_over() {
    let db = Db::new();
    for code in ["completed", "aborted", "pending"] {
        db.clear();
        let (mut open, mut other) = (db.connect(), db.connect());
        let tasks = json!([
            {"id": "1", "action": "x"},
            {"id": "child", "action": "x", "depends_on": [{"id": "1", "condition": "settled"}]},
        ]);
        open.insert(tasks).unwrap();
        let grant = open.own_one("x");
        other.insert(json!([{"id": "2", "action": "x"}])).unwrap();
        open.run("BEGIN");
        open.give("1", grant.token, code).unwrap();
        assert_eq!(owned_at_once(&mut other, &["x"]), ["2"], "{code}");
        open.run("COMMIT");
        let freed = if code == "pending" { "1" } else { "child" };
        assert_eq!(owned_at_once(&mut other, &["x"]), [freed], "{code}");
    }
}

#[test]
fn an_open_insert_is_passed_over_and_found_later() {
    let (_db, [mut open, mut other]) = Db::connected();
    open.run("BEGIN");
    open.insert(
        json!([{"id": "early", "action": "x"}, {"id": "now settled", "action": "s", "spontaneous": true}]),
    )
    .unwrap();
    other.insert(json!([{"id": "late", "action": "x"}])).unwrap();
    assert_eq!(owned_at_once(&mut other, &["x"]), ["late"]);
    other.insert(json!([{"id": "later", "action": "x"}])).unwrap();
    assert_eq!(owned_at_once(&mut other, &["x"]), ["later"]);
    open.run("COMMIT");
    assert_eq!(owned_at_once(&mut other, &["x"]), ["early"], "what commits late is not passed for ever");
}

#[test]
fn open_replace_delete_cancel_and_edges_are_passed_over() {
    let db = Db::new();
    let calls = [
        r#"SELECT taskq.replace_tasks('[{"id": "1", "action": "x"}]')"#,
        "SELECT taskq.delete_tasks('{1}')",
        "SELECT taskq.cancel_tasks('{1}')",
        r#"SELECT taskq.add_dependencies('[{"after": "gate", "run": "1"}]'::jsonb)"#,
        r#"SELECT taskq.insert_tasks('[{"id": "n", "action": "x", "depends_on": ["2"], "to_signal_after": ["1"]}]')"#,
    ];
    for call in calls {
        db.clear();
        let (mut open, mut other) = (db.connect(), db.connect());
        let tasks =
            json!([{"id": "1", "action": "x"}, {"id": "2", "action": "x"}, {"id": "gate", "action": "y"}]);
        open.insert(tasks).unwrap();
        open.run("BEGIN");
        open.run(call);
        // Task 1 is being changed. Task 2 is free, though a queue may pass over a task to which edges are just being
        // added.
        let mut owned = owned_at_once(&mut other, &["x"]);
        assert!(!owned.contains(&"1".to_owned()), "{call}: {owned:?}");
        open.run("ROLLBACK");
        owned.extend(owned_at_once(&mut other, &["x"]));
        owned.sort();
        assert_eq!(owned, ["1", "2"], "{call}");
    }
}

#[test]
fn own_in_a_transaction_sees_what_the_transaction_did() {
    let (_db, [mut session]) = Db::connected();
    session.run("BEGIN");
    session
        .insert(json!([{"id": "1", "action": "x"}, {"id": "2", "action": "x", "depends_on": ["1"]}]))
        .unwrap();
    assert_eq!(session.perform("x", "completed"), "1");
    assert_eq!(session.perform("x", "pending"), "2");
    assert_eq!(session.perform("x", "completed"), "2");
    session.run("COMMIT");
    assert_eq!(session.task("2").unwrap().num_tries, 2);
}

#[test]
fn a_read_only_transaction_is_refused_cleanly() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "1", "action": "x"}]));
    session.run("BEGIN READ ONLY");
    let error = session.own("w", 1, &["x"]).unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&error), "25006");
    session.run("ROLLBACK");
    assert_eq!(session.own_one("x").num_tries, 1);
}

/// A worker that has connected to a standby would poll it for ever otherwise, and sleep there.
#[test]
fn a_read_only_transaction_is_refused_also_where_there_is_nothing_to_own() {
    let (_db, [mut session]) = Db::connected();
    for arguments in ["'w', 1, '{nothing}'", "'w', 0, '{nothing}'", "'w', 1, '{nothing}', wait => '1 minute'"]
    {
        session.run("BEGIN READ ONLY");
        let error = session.query(&format!("SELECT taskq.own_tasks({arguments})"), &[]).unwrap_err();
        assert_eq!(taskq_tests::sqlstate(&error), "25006", "{arguments}");
        session.run("ROLLBACK");
    }
}
