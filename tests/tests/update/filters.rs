//! `update_tasks` for what may have begun by now, and for what only a filter knows.
//!
//! On wrong code: one task that began spoils the call for a whole sub-graph, or a task in progress is changed under its
//! worker; a filter waits for a worker's open return, or is about tasks that came in between.

use serde_json::json;
use taskq_tests::{Db, Progress, Session, refused};

fn queue(db: &Db) -> Session {
    let mut session = db.connect();
    session
        .insert(json!([
            {"id": "done", "action": "x", "group_id": "g"}, {"id": "held", "action": "x", "group_id": "g"},
            {"id": "ready", "action": "x", "group_id": "g"}, {"id": "blocked", "action": "y", "group_id": "g", "depends_on": ["held"]},
            {"id": "later", "action": "y", "group_id": "g", "delay": "1 day"}, {"id": "other", "action": "y", "group_id": "h"},
            {"id": "none", "action": "x"},
        ]))
        .unwrap();
    session.perform("x", "completed");
    session.own_one("x");
    session
}

/// Those whose priority has been changed.
fn changed(session: &mut Session) -> Vec<String> {
    let ids = session.all("SELECT id FROM taskq.tasks WHERE priority <> 0 ORDER BY id");
    session.run("SELECT taskq.update_tasks(ARRAY(SELECT id FROM taskq.tasks WHERE status_code = 'pending'), priority => 0)");
    ids
}

fn update(session: &mut Session, arguments: &str) -> i64 {
    session.one(&format!("SELECT taskq.update_tasks({arguments}, priority => 7)"))
}

#[test]
fn those_that_have_begun_are_left_alone_if_that_is_asked_for() {
    let db = Db::new();
    let mut session = queue(&db);
    let before = ["done", "held"].map(|id| session.task(id).unwrap());
    assert_eq!(update(&mut session, "'{done,held,ready,blocked,ready}', if_started => 'skip'"), 2);
    assert_eq!(changed(&mut session), ["blocked", "ready"]);
    assert_eq!(update(&mut session, "'{done,held}', if_started => 'skip'"), 0);
    assert_eq!(["done", "held"].map(|id| session.task(id).unwrap()), before);
    let call = "SELECT taskq.update_tasks('{ready,nothing}', priority => 7, if_started => 'skip')";
    refused(&mut session, "TQ003", "nothing", call, &[]);
    for (how, code) in [("'error'", "TQ005"), ("NULL", "22004"), ("'skipp'", "22023")] {
        let naming = if code == "TQ005" { "held" } else { "if_started" };
        let call = format!("SELECT taskq.update_tasks('{{ready,held}}', priority => 7, if_started => {how})");
        refused(&mut session, code, naming, &call, &[]);
    }
}

#[test]
fn filters_find_what_has_yet_to_begin() {
    let db = Db::new();
    let mut session = queue(&db);
    for (arguments, found) in [
        ("groups => '{g}'", vec!["blocked", "later", "ready"]),
        ("groups => '{g,h}', actions => '{y}'", vec!["blocked", "later", "other"]),
        ("actions => '{x}'", vec!["none", "ready"]),
        ("NULL, groups => '{g}', if_started => 'skip'", vec!["blocked", "later", "ready"]),
        ("groups => '{absent}'", vec![]),
        ("groups => '{}'", vec![]),
        ("actions => '{NULL}'", vec![]),
        ("'{ready,other,none}', groups => '{g}'", vec!["ready"]),
        // Of the ids that meet the filter none has begun.
        ("'{held,other}', actions => '{y}'", vec!["other"]),
        ("'{held,ready}', groups => '{g}', if_started => 'skip'", vec!["ready"]),
    ] {
        assert_eq!(update(&mut session, arguments), found.len() as i64, "{arguments}");
        assert_eq!(changed(&mut session), found, "{arguments}");
    }
    for (code, naming, arguments) in [
        ("22004", "task_ids", "priority => 1"),
        ("22004", "task_ids", "if_started => 'skip', priority => 1"),
        ("22004", "task_ids", "'{NULL}', groups => '{g}'"),
        ("TQ003", "nothing", "'{nothing}', groups => '{g}'"),
        ("TQ005", "held", "'{held,ready}', groups => '{g}', priority => 1"),
    ] {
        refused(&mut session, code, naming, &format!("SELECT taskq.update_tasks({arguments})"), &[]);
    }
}

/// A worker whose return is open for long keeps no call from the rest of the graph.
#[test]
fn what_is_in_progress_is_not_waited_for() {
    let db = Db::new();
    let mut open = queue(&db);
    let mut watcher = db.connect();
    open.run("BEGIN");
    open.run(
        "SELECT FROM taskq.run WHERE task_no = (SELECT task_no FROM taskq.task WHERE id = 'held') FOR UPDATE",
    );
    for arguments in ["'{held,ready}', if_started => 'skip'", "groups => '{g}'", "actions => '{x}'"] {
        let call = db.connect().background(move |s| update(s, arguments));
        assert_eq!(call.settle_down(&mut watcher), Progress::Done, "{arguments}");
        assert!(call.join().1 >= 1);
    }
    open.run("ROLLBACK");
}

/// What is granted, or ends, while the call waits for it has begun; what is given up is changed.
#[test]
fn what_begins_while_the_call_waits_is_passed_over() {
    let (db, [mut watcher]) = Db::connected();
    for arguments in
        ["'{a,b}', if_started => 'skip'", "groups => '{g}'", "'{a,b}', groups => '{g}', if_started => 'skip'"]
    {
        for (meanwhile, end, number) in [
            ("SELECT * FROM taskq.own_tasks('w', 1, '{x}')", "COMMIT", 1),
            ("SELECT * FROM taskq.own_tasks('w', 1, '{x}')", "ROLLBACK", 2),
            ("SELECT taskq.cancel_tasks('{a}')", "COMMIT", 1),
            (
                "SELECT taskq.delete_tasks('{a}'); SELECT taskq.insert_task('a', 'x', group_id => 'h')",
                "COMMIT",
                1,
            ),
        ] {
            let mut open = db.connect();
            open.insert(json!([{"id": "a", "action": "x", "group_id": "g"}, {"id": "b", "action": "y", "group_id": "g"}])).unwrap();
            open.run("BEGIN");
            open.run(meanwhile);
            let call = db.connect().background(move |s| update(s, arguments));
            assert_eq!(call.settle_down(&mut watcher), Progress::Blocked, "{arguments}, {meanwhile}");
            open.run(end);
            let (mut session, answer) = call.join();
            // Another task has come in its place: the ids name that one, as far as it meets the filter.
            let number = number + i64::from(meanwhile.contains("insert") && !arguments.contains("groups"));
            assert_eq!(answer, number, "{arguments}, {meanwhile}, {end}");
            assert_eq!(session.broken(), [""; 0]);
            db.clear();
        }
    }
}

/// A member that comes while the call waits for another is none of those that it has found.
#[test]
fn what_comes_in_between_is_not_changed_in_part() {
    let (db, [mut open, mut watcher]) = Db::with_tasks(json!([{"id": "a", "action": "x", "group_id": "g"}]));
    open.run("BEGIN; SELECT taskq.update_tasks('{a}', priority => 1)");
    let call = db.connect().background(|s| update(s, "groups => '{g}'"));
    assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
    watcher.insert(json!([{"id": "new", "action": "x", "group_id": "g"}])).unwrap();
    open.run("COMMIT");
    let (mut session, answer) = call.join();
    assert_eq!(answer, 1);
    assert_eq!(["a", "new"].map(|id| session.task(id).unwrap().priority), [7, 0]);
}
