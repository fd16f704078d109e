//! What is sealed, and when.
//!
//! On wrong code: a seal that goes past a transaction that is still open loses what it settles for ever; one that ignores
//! another clock counts nothing of what it says; one that is dumped is wrong in the copy.

use serde_json::json;
use taskq_tests::{Db, Session, until};

use super::{assert_counted, seal, sealed_since, tallied};

/// Inserts so many tasks of the action, and completes them.
fn complete(session: &mut Session, action: &str, many: usize) {
    session.run("SET taskq.retention = -1");
    session.insert((0..many).map(|_| json!({"action": action})).collect()).unwrap();
    session.run(&format!(
        "SELECT taskq.return_task(t.task_id, t.token) FROM taskq.own_tasks('w', {many}, '{{{action}}}') AS t"
    ));
}

#[test]
fn what_is_sealed_is_not_counted_row_by_row() {
    let (_db, [mut session]) = Db::connected();
    complete(&mut session, "x", 30);
    assert_eq!(tallied(&mut session, "x"), 0);
    assert_counted(&mut session, "before anything is sealed");
    seal(&mut session);
    assert_eq!(tallied(&mut session, "x"), 30);
    assert_counted(&mut session, "sealed");
    complete(&mut session, "x", 7);
    assert_counted(&mut session, "and some that are not");
    session.run("BEGIN; DELETE FROM taskq.settled WHERE settled_at < (SELECT until FROM taskq.seal)");
    let counted: i64 = session.one("SELECT count FROM taskq.count_tasks('{x}') WHERE state = 'completed'");
    session.run("ROLLBACK");
    assert_eq!(counted, 37, "the rows were not read");
    let by_view: i64 = session.one("SELECT completed FROM taskq.stats WHERE action = 'x'");
    let metrics: String = session.one("SELECT taskq.metrics()");
    assert_eq!(by_view, 37);
    assert!(metrics.contains("taskq_tasks{action=\"x\",state=\"completed\"} 37\n"), "{metrics}");
    assert!(metrics.contains("taskq_settled_tasks{cause=\"returned\"} 37\n"), "{metrics}");
}

/// Some drivers open a block for each call. A session in one keeps others from sealing while the block is open. So it
/// seals only where no other session has for a minute.
#[test]
fn what_only_works_in_transaction_blocks_is_sealed_as_well() {
    let (_db, [mut session]) = Db::connected();
    complete(&mut session, "x", 30);
    session.run("UPDATE taskq.settled SET settled_at = settled_at - interval '10 minutes'");
    until("all is sealed by calls in blocks", || {
        session.run("UPDATE taskq.seal SET mark_at = mark_at - interval '5 minutes' WHERE mark_at > now() - interval '2 minutes'");
        session.run("BEGIN; SELECT taskq.maintain(); COMMIT");
        (tallied(&mut session, "x") == 30).then_some(())
    });
    assert_counted(&mut session, "sealed in a block");
    // Rolled back, nothing has happened.
    complete(&mut session, "x", 7);
    session.run("UPDATE taskq.settled SET settled_at = settled_at - interval '4 minutes'");
    session.run("UPDATE taskq.seal SET mark_at = mark_at - interval '2 minutes'");
    session.run("BEGIN; SELECT taskq.maintain(); ROLLBACK");
    assert_counted(&mut session, "rolled back");
}

#[test]
#[ignore = "long"]
fn nothing_is_sealed_while_an_open_transaction_may_still_settle_in_it() {
    for (begin, end) in [
        ("BEGIN", "COMMIT"),
        ("BEGIN", "ROLLBACK"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", "COMMIT"),
        ("BEGIN; SAVEPOINT s", "RELEASE s; COMMIT"),
        ("BEGIN; SAVEPOINT s", "ROLLBACK TO s; COMMIT"),
        ("BEGIN", "PREPARE TRANSACTION 'counts'"),
    ] {
        let (_db, [mut open, mut session]) = Db::connected();
        session.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
        // Has no id yet: holds nothing up.
        open.run(&format!("{begin}; SELECT 1"));
        session.perform("x", "completed");
        seal(&mut session);
        open.perform("x", "aborted");
        let settled: String = open.one("SELECT clock_timestamp()::text");
        if end.starts_with("PREPARE") {
            open.run(end);
        }
        // Time goes by, others settle, and upkeep does what it can.
        session.run("SELECT pg_sleep(1.2)");
        for _ in 0..3 {
            complete(&mut session, "y", 1);
            session.run("SELECT taskq.maintain()");
        }
        assert!(!sealed_since(&mut session, &settled), "{begin}, {end}");
        assert_counted(&mut session, "meanwhile");
        open.run(if end.starts_with("PREPARE") { "COMMIT PREPARED 'counts'" } else { end });
        assert_counted(&mut session, end);
        seal(&mut session);
        assert_counted(&mut session, end);
        assert_eq!(tallied(&mut session, "x"), if end.starts_with("ROLLBACK") { 1 } else { 2 }, "{end}");
    }
}

#[test]
fn an_older_snapshot_goes_on_seeing_its_numbers() {
    let (_db, [mut old, mut session]) = Db::connected();
    complete(&mut session, "x", 20);
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_counted(&mut old, "at first");
    session.perform("x", "aborted");
    session.run("SELECT taskq.delete_tasks(array_agg(t.id)) FROM (SELECT id FROM taskq.tasks WHERE state = 'completed' LIMIT 5) AS t");
    seal(&mut session);
    assert_counted(&mut old, "after a seal and a removal");
    session.run("SELECT taskq.retry_tasks('{a}')");
    let counted: i64 = old.one("SELECT count FROM taskq.count_tasks('{x}') WHERE state = 'completed'");
    assert_eq!(counted, 20);
    assert_counted(&mut old, "and after a retry");
    old.run("COMMIT");
    assert_counted(&mut old, "with a new one");
}

#[test]
fn by_another_clock_tasks_settle_in_what_is_sealed() {
    let (_db, [mut session]) = Db::connected();
    complete(&mut session, "x", 3);
    seal(&mut session);
    for now in ["2001-02-03", "2099-01-01", "-infinity", "infinity"] {
        session.set_now(Some(now));
        complete(&mut session, "x", 4);
        assert_counted(&mut session, now);
        session.run("SELECT taskq.cancel_tasks(ARRAY(SELECT taskq.insert_task(NULL, 'x')))");
        session.run("SELECT taskq.delete_tasks(array_agg(t.id)) FROM (SELECT id FROM taskq.tasks ORDER BY settled_at DESC LIMIT 2) AS t");
        assert_counted(&mut session, now);
        session.set_now(None);
        seal(&mut session);
        assert_counted(&mut session, now);
    }
}

#[test]
fn a_clock_that_is_put_back_begins_anew() {
    let (_db, [mut session]) = Db::connected();
    complete(&mut session, "x", 9);
    seal(&mut session);
    // As if that had been done by a clock that was an hour fast.
    session.run(
        "UPDATE taskq.seal SET until = until + interval '1 hour', mark_at = mark_at + interval '1 hour'",
    );
    complete(&mut session, "x", 2);
    session.run("SELECT taskq.maintain()");
    assert_counted(&mut session, "noticed");
    seal(&mut session);
    assert_counted(&mut session, "sealed again");
    assert_eq!(tallied(&mut session, "x"), 11);
}

/// A transaction that removes what is long sealed appends a correction that has no time. If sealing begins anew before
/// it commits, the correction must not be taken for one of something that is sealed already.
#[test]
fn recount_counts_right_beside_an_open_transaction_that_removes_tasks() {
    for end in ["COMMIT", "ROLLBACK"] {
        let (_db, [mut open, mut session]) = Db::connected();
        session.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
        session.run("SET taskq.retention = -1; SET taskq.now = '2020-01-01'");
        session.perform("x", "completed");
        session.run("RESET taskq.now");
        session.perform("x", "aborted");
        seal(&mut session);
        open.run("BEGIN; SELECT taskq.delete_tasks('{a}')");
        session.run("SELECT taskq.recount()");
        assert_counted(&mut session, "begun anew");
        for _ in 0..3 {
            session.run("SELECT taskq.maintain()");
            assert_counted(&mut session, "beside the open removal");
        }
        open.run(end);
        assert_counted(&mut session, end);
        seal(&mut session);
        assert_counted(&mut session, end);
        assert_eq!(tallied(&mut session, "x"), if end == "COMMIT" { 1 } else { 2 });
    }
}

/// More than one step takes, in one second and in several.
#[test]
fn much_is_sealed_step_by_step() {
    let (_db, [mut session]) = Db::connected();
    // What is said to have ended years ago is not to be removed.
    session.run("SET taskq.retention = -1");
    session.run(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 't' || n, 'action', 'x'))
                                                    FROM generate_series(1, 45000) AS n))",
    );
    session.run("SELECT taskq.cancel_tasks(array_agg('t' || n)) FROM generate_series(1, 25000) AS n");
    for part in 0..4 {
        let first = 25_001 + part * 5_000;
        session.run(&format!(
            "SET taskq.now = '{}'; SELECT taskq.cancel_tasks(array_agg('t' || n)) FROM generate_series({first}, {first} + 4999) AS n",
            format_args!("2020-01-01 00:00:0{part}")
        ));
    }
    session.run("RESET taskq.now");
    until("all is sealed", || {
        session.run("SELECT taskq.maintain()");
        (tallied(&mut session, "x") == 45_000).then_some(())
    });
    assert_counted(&mut session, "all");
}

/// The tallies of long ago are one row; those of the last hour keep their minutes, and what has been removed since.
#[test]
fn tallies_are_folded_and_still_know_the_last_hour() {
    let (_db, [mut session]) = Db::connected();
    for ago in ["3 hours", "2 hours", "40 minutes", "40 minutes", "20 minutes"] {
        let now: String =
            session.one(&format!("SELECT (date_trunc('minute', now()) - interval '{ago}')::text"));
        session.set_now(Some(&now));
        complete(&mut session, "x", 10);
    }
    session.set_now(None);
    seal(&mut session);
    session.run("SELECT taskq.delete_tasks(array_agg(t.id)) FROM (SELECT id FROM taskq.tasks ORDER BY settled_at LIMIT 15) AS t");
    session.run("SELECT taskq.delete_tasks(array_agg(t.id)) FROM (SELECT id FROM taskq.tasks ORDER BY settled_at DESC LIMIT 4) AS t");
    assert_counted(&mut session, "corrected");
    // Folding comes with the next minute; in the last three nothing has settled.
    session.run("UPDATE taskq.seal SET until = until - interval '3 minutes'");
    seal(&mut session);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.end_tally"), 3);
    assert_counted(&mut session, "folded");
    let rows: Vec<String> = session
        .all("SELECT concat_ws(' ', y.span, y.number, y.ended) FROM taskq.end_tally AS y ORDER BY y.span");
    assert!(rows[0].ends_with(" 5 20"), "long ago: {rows:?}");
    assert!(rows[1].ends_with(" 20 20") && rows[2].ends_with(" 6 10"), "the last hour: {rows:?}");
}

/// What has ended is a number that only grows, whatever becomes of the tasks, and of the tallies.
#[test]
fn what_has_ended_is_counted_for_ever() {
    let ended = |session: &mut Session| -> Vec<String> {
        session.all(
            "SELECT concat_ws(' ', m.labels ->> 'outcome', m.labels ->> 'cause', m.value) FROM taskq.metrics_rows() AS m
              WHERE m.name = 'taskq_ended_tasks_total' AND m.labels ->> 'action' = 'x' ORDER BY 1",
        )
    };
    let (_db, [mut session]) = Db::connected();
    complete(&mut session, "x", 10);
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    session.run("SELECT taskq.cancel_tasks('{a}')");
    let expected = ["aborted cancelled 1", "completed returned 10"];
    assert_eq!(ended(&mut session), expected, "by the rows");
    let remove = "SELECT taskq.delete_tasks(array_agg(t.id)) FROM (SELECT id FROM taskq.tasks WHERE state = 'completed' ORDER BY id LIMIT 3) AS t";
    session.run(remove);
    assert_eq!(ended(&mut session), expected, "removed before they are sealed");
    seal(&mut session);
    assert_eq!(ended(&mut session), expected, "sealed");
    session.run(remove);
    assert_eq!(ended(&mut session), expected, "removed after that");
    // Long ago.
    session.run("UPDATE taskq.end_tally SET span = span - interval '2 days'; UPDATE taskq.settled SET settled_at = settled_at - interval '2 days'");
    session.run("UPDATE taskq.seal SET until = until - interval '3 minutes'");
    seal(&mut session);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.end_tally WHERE span = '-infinity'"), 2);
    assert_eq!(ended(&mut session), expected, "folded");
    session.run(remove);
    assert_eq!(ended(&mut session), expected, "removed long after");
    session.run("SELECT taskq.recount()");
    assert_eq!(ended(&mut session), expected, "to be sealed anew");
    seal(&mut session);
    assert_eq!(ended(&mut session), expected, "sealed anew");
    assert_counted(&mut session, "sealed anew");
    // What ends again is counted again.
    session.run("SELECT taskq.retry_tasks('{a}')");
    session.perform("x", "completed");
    assert_eq!(ended(&mut session), ["aborted cancelled 1", "completed returned 11"]);
}

#[test]
fn what_replaced_tasks_leave_behind_is_not_counted() {
    for sealed in [false, true] {
        let (_db, [mut session]) =
            Db::with_tasks(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]));
        session.perform("x", "completed");
        if sealed {
            seal(&mut session);
        }
        session.replace(json!([{"id": "a", "action": "y"}, {"id": "b", "action": "y"}])).unwrap();
        assert_counted(&mut session, "replaced");
        seal(&mut session);
        assert_counted(&mut session, "sealed after that");
        // A call that waits learns what became of it all the same.
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.settled"), 2);
        session.run("UPDATE taskq.settled SET expires_at = now()");
        seal(&mut session);
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.settled"), 0);
        assert_counted(&mut session, "and gone");
    }
}
