//! What is read, in which order, and what is held back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use taskq_tests::{Db, refused};

use crate::{ended, next};

#[test]
fn each_end_comes_once_and_after_what_it_follows_from() {
    let (_db, [mut session]) = Db::connected();
    // Those that follow have lower numbers than what they follow from.
    session
        .insert(json!([
            {"id": "last", "action": "m", "spontaneous": true, "depends_on": ["mark"], "group_id": "g"},
            {"id": "mark", "action": "m", "spontaneous": true, "depends_on": ["a"]},
            {"id": "undo", "action": "x", "depends_on": [{"id": "a", "condition": "aborted"}]},
            {"id": "a", "action": "x"}, {"id": "b", "action": "y"}, {"id": "waits", "action": "z"},
        ]))
        .unwrap();
    let grant = session.own_one("x");
    session
        .run(&format!("SELECT taskq.return_task('a', '{}', status => 'well', result => '7')", grant.token));
    session.run("SELECT taskq.cancel_tasks('{b}', 'enough')");
    let rows = next(&mut session, None, "");
    let what: Vec<&str> = rows.iter().map(|(_, what)| what.as_str()).collect();
    assert_eq!(what[0], "a completed");
    assert_eq!(what[4], "b aborted cancelled");
    let place = |id: &str| what.iter().position(|what| what.starts_with(id)).unwrap();
    assert!(place("mark") < place("last") && what[place("undo")] == "undo aborted skipped", "{what:?}");
    for (n, (cursor, _)) in rows.iter().enumerate() {
        assert_eq!(ended(&mut session, Some(cursor)), what[n + 1..]);
    }
    assert_eq!(next(&mut session, None, ", max_tasks => 2"), rows[..2]);
    assert_eq!(next(&mut session, None, ", actions => '{y}'").len(), 1);
    assert_eq!(
        session.one::<String>(
            "SELECT concat_ws(' ', action, group_id IS NULL, status, result, num_tries, settled_at <= clock_timestamp())
               FROM taskq.endings() LIMIT 1"
        ),
        "x t well 7 1 t"
    );
    // It starts over and ends again: only its last end is there, behind all others.
    session.run("SELECT taskq.retry_tasks('{b}'); SELECT taskq.cancel_tasks('{b}')");
    assert_eq!(ended(&mut session, Some(&rows[4].0)), ["b aborted cancelled"]);
}

#[test]
fn what_is_not_committed_comes_behind_now() {
    let (_db, [mut session, mut open, mut other]) = Db::connected();
    session.run("SELECT taskq.insert_many('x', array_fill(NULL::text, '{4}'), ids => '{a,b,c,d}')");
    session.run("SELECT taskq.cancel_tasks('{a}')");
    open.run("BEGIN; SELECT taskq.cancel_tasks('{b}')");
    other.run("SELECT taskq.cancel_tasks('{c}')");
    let query = "SELECT concat_ws('|', cursor, task_id, status_code, settled_at) FROM taskq.endings('now')";
    let now: String = session.one(query);
    assert!(!now.contains('|'), "only the cursor: {now}");
    // "c" has settled after the open transaction began: it is held back until that has ended.
    let first = next(&mut session, None, "");
    assert_eq!(first.iter().map(|(_, what)| what.as_str()).collect::<Vec<_>>(), ["a aborted cancelled"]);
    open.run("COMMIT");
    assert_eq!(ended(&mut session, Some(&first[0].0)), ["b aborted cancelled", "c aborted cancelled"]);
    assert!(ended(&mut session, Some(&now)).contains(&"b aborted cancelled".to_owned()));
    // Not to the end of a transaction that has looked before.
    session.run("BEGIN; SELECT count(*) FROM pg_stat_activity; SELECT count(*) FROM taskq.endings()");
    open.run("BEGIN; SELECT taskq.cancel_tasks('{d}')");
    let late: String = session.one(query);
    open.run("COMMIT");
    session.run("COMMIT");
    assert_eq!(ended(&mut session, Some(&late)), ["d aborted cancelled"]);
}

#[test]
fn a_snapshot_of_a_transaction_hides_nothing_before_a_cursor() {
    let (_db, [mut session, mut open, mut other]) = Db::connected();
    session.run("SELECT taskq.insert_many('x', array_fill(NULL::text, '{2}'), ids => '{early,late}')");
    open.run("BEGIN; SELECT taskq.cancel_tasks('{early}')");
    other.run("SELECT taskq.cancel_tasks('{late}')");
    // Its snapshot sees "late" and not "early", which settled before.
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM taskq.tasks");
    open.run("COMMIT");
    assert_eq!(ended(&mut session, None), ["early aborted cancelled", "late aborted cancelled"]);
    session.run("COMMIT");
}

#[test]
fn a_prepared_transaction_holds_back_what_may_come_before() {
    let (db, [mut session, mut other]) = Db::connected();
    if session.one::<i32>("SELECT setting::int FROM pg_settings WHERE name = 'max_prepared_transactions'")
        == 0
    {
        return;
    }
    session.run("SELECT taskq.insert_many('x', array_fill(NULL::text, '{2}'), ids => '{early,late}')");
    let gid = format!("{} endings", db.name());
    other.run(&format!("BEGIN; SELECT taskq.cancel_tasks('{{early}}'); PREPARE TRANSACTION '{gid}'"));
    session.run("SELECT taskq.cancel_tasks('{late}')");
    let before = ended(&mut session, None);
    other.run(&format!("COMMIT PREPARED '{gid}'"));
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(ended(&mut session, None), ["early aborted cancelled", "late aborted cancelled"]);
}

/// Four sessions end tasks, in transactions of several calls of which some are rolled back. A reader follows them by cursors.
#[test]
fn a_reader_beside_many_writers_reads_each_end_once() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 60;
    let db = Db::new();
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut session = db.connect();
            let mut cursor: Option<String> = None;
            let mut seen: HashMap<String, usize> = HashMap::new();
            loop {
                let last = done.load(Ordering::SeqCst);
                let rows = next(&mut session, cursor.as_deref(), ", max_tasks => 7");
                if rows.is_empty() && last {
                    return seen;
                }
                for (at, what) in rows {
                    *seen.entry(what).or_default() += 1;
                    cursor = Some(at);
                }
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    let mut session = db.connect();
                    for round in 0..ROUNDS {
                        let id = format!("{writer} {round}");
                        session.run(&format!(
                            "SELECT taskq.insert_tasks('[{{\"id\": \"{id}\", \"action\": \"x\"}},
                               {{\"id\": \"{id} m\", \"action\": \"m\", \"spontaneous\": true, \"depends_on\": [{{\"id\": \"{id}\", \"condition\": \"settled\"}}]}}]')"
                        ));
                        let end = if round % 5 == 0 { "ROLLBACK" } else { "COMMIT" };
                        session.run(&format!(
                            "BEGIN; SELECT taskq.cancel_tasks('{{{id}}}'); SELECT pg_sleep(0.00{}); {end}",
                            round % 7
                        ));
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
        reader.join().unwrap()
    });
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    assert_eq!(seen.len(), WRITERS * ROUNDS * 4 / 5 * 2);
}

#[test]
fn what_is_no_cursor_is_refused() {
    let (_db, [mut session]) = Db::connected();
    for after in ["", "then", "1", "1.x", "x.1", "1.1.1"] {
        refused(&mut session, "22023", "after", "SELECT taskq.endings($1)", &[&after]);
    }
    for most in [0, -1] {
        refused(&mut session, "22023", "max_tasks", "SELECT taskq.endings(max_tasks => $1)", &[&most]);
    }
}
