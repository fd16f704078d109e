//! Suspensions beside what happens at the same moment: each end of what is waited for counts once, for the wait that it is of.

use serde_json::json;
use taskq_tests::{Answer, Db, Progress, Session, sqlstate};

use super::{own_with_results, signal, suspend, suspended, waits_for};

/// The end of what it waits for is on its way: the suspension waits for that, and counts it, or finds that it was rolled back.
#[test]
fn an_end_in_an_open_transaction_is_counted_or_waited_for() {
    for commit in [true, false] {
        let (_db, [mut first, mut second, mut watcher]) = Db::connected();
        watcher.run("SELECT taskq.insert_task('a', 'x'), taskq.insert_task('t', 'work')");
        let a = first.own_one("x");
        let grant = second.own_one("work");
        first.run("BEGIN");
        first.complete(&a);
        let second = second.background(move |s| suspend(s, &grant, "depends_on => '[\"a\"]'").unwrap());
        assert_eq!(second.settle_down(&mut watcher), Progress::Blocked);
        first.run(if commit { "COMMIT" } else { "ROLLBACK" });
        second.join();
        assert_eq!(watcher.state("t"), if commit { "ready" } else { "blocked" });
        if !commit {
            first.complete(&a);
            assert_eq!(watcher.state("t"), "ready");
        }
    }
}

/// The end of a dependency that some-of-many does without is still on its way when the task waits for another one.
#[test]
fn an_end_of_an_earlier_wait_counts_for_nothing() {
    let (_db, [mut first, mut second, mut session]) = Db::connected();
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
                       {"id": "t", "action": "work", "depends_on": ["a", "b"], "num_required": 1}]))
        .unwrap();
    let (a, b) = (first.own_one("a"), second.own_one("b"));
    first.run("BEGIN");
    first.complete(&a);
    // The counter is in the hands of the first: this one leaves a signal.
    second.run("BEGIN");
    second.complete(&b);
    assert_eq!(second.one::<i64>("SELECT count(*) FROM taskq.countdown"), 1);
    first.run("COMMIT");
    let grant = session.own_one("work");
    suspend(&mut session, &grant, "depends_on => '[{\"id\": \"s\", \"signal\": true}]'").unwrap();
    second.run("COMMIT");
    session.run("SELECT taskq.maintain()");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["s"]);
    assert!(signal(&mut session, "s"));
    assert_eq!(session.own_one("work").task_id, "t");
}

/// Two tasks that wait for each other: the second is refused, and still held.
#[test]
fn two_suspensions_that_close_a_cycle() {
    let (_db, [mut first, mut second, mut watcher]) = Db::connected();
    watcher.run("SELECT taskq.insert_task('a', 'a'), taskq.insert_task('b', 'b')");
    let (a, b) = (first.own_one("a"), second.own_one("b"));
    first.run("BEGIN");
    suspend(&mut first, &a, "depends_on => '[\"b\"]'").unwrap();
    let held = b.clone();
    let second = second
        .background(move |s| suspend(s, &b, "depends_on => '[\"a\"]'").map_err(|e| sqlstate(&e).to_owned()));
    assert_eq!(second.settle_down(&mut watcher), Progress::Blocked);
    first.run("COMMIT");
    let (mut second, answer) = second.join();
    assert_eq!(answer, Err("TQ004".to_owned()));
    second.complete(&held);
    assert_eq!(watcher.state("a"), "ready");
}

/// The same through a task that waits for both.
#[test]
fn a_cycle_through_others_is_found() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "a"}, {"id": "m", "action": "m", "depends_on": ["a"]},
                {"id": "n", "action": "m", "depends_on": ["m"]}, {"id": "b", "action": "b"},
                {"id": "o", "action": "m", "depends_on": ["b"]}]));
    let (a, b) = (session.own_one("a"), session.own_one("b"));
    suspend(&mut session, &a, "depends_on => '[\"o\"]'").unwrap();
    let error = suspend(&mut session, &b, "depends_on => '[\"n\"]'").unwrap_err();
    assert_eq!(sqlstate(&error), "TQ004");
}

#[test]
fn a_return_beside_an_insertion_below_a_suspended_task_makes_no_deadlock() {
    let (db, [mut session, mut inserter]) = Db::connected();
    session.run("SELECT taskq.insert_task('t', 'work')");
    let grant = session.own_one("work");
    inserter.run("BEGIN");
    inserter.insert(json!([{"id": "below", "action": "y", "depends_on": ["t"]}])).unwrap();
    let (mut watcher, token) = (db.connect(), grant.clone());
    let session = session.background(move |s| {
        suspend(s, &token, "depends_on => '[{\"id\": \"s\", \"signal\": true}]'").unwrap()
    });
    assert_eq!(session.settle_down(&mut watcher), Progress::Blocked);
    inserter.run("COMMIT");
    session.join();
    assert_eq!(watcher.state("t"), "blocked");
    suspended(&mut watcher, "u", "[\"below\"]");
}

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// In a transaction that has its snapshot already, `beside` comes before `call`; if the call is told to begin anew, it does. The task has
/// gone on in any case.
fn behind_an_old_snapshot(
    level: &str,
    beside: impl Fn(&mut Session),
    call: impl Fn(&mut Session) -> Answer<()>,
) {
    let (_db, [mut session, mut other]) = Db::connected();
    session.run("SELECT taskq.insert_task('t', 'work')");
    let mut tries = 0;
    loop {
        session.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert!(session.one::<i64>("SELECT count(*) FROM taskq.tasks") > 0);
        if tries == 0 {
            beside(&mut other);
        }
        tries += 1;
        match call(&mut session) {
            Ok(()) => break session.run("COMMIT"),
            Err(error) => {
                assert_eq!((sqlstate(&error), tries), ("40001", 1), "{level}: {error}");
                session.run("ROLLBACK");
            }
        }
    }
    assert!(
        other.one::<i64>("SELECT count(*) FROM taskq.settled JOIN taskq.task USING (task_no) WHERE id = 's'")
            == 1
    );
    let (_, results) = own_with_results(&mut other, "work");
    assert_eq!(results[0]["task_id"], "s", "{level}");
}

#[test]
fn a_signal_behind_an_old_snapshot_reaches_what_was_suspended_since() {
    for level in LEVELS {
        behind_an_old_snapshot(
            level,
            |other| suspend_held(other, "[{\"id\": \"s\", \"signal\": true}]"),
            |session| session.query_one("SELECT taskq.signal('s')", &[]).map(drop),
        );
    }
}

#[test]
fn a_suspension_behind_an_old_snapshot_finds_the_signal_that_came_since() {
    for level in LEVELS {
        behind_an_old_snapshot(
            level,
            |other| assert!(signal(other, "s")),
            |session| {
                let grant = session.own("worker", 1, &["work"])?.remove(0);
                suspend(session, &grant, "depends_on => '[{\"id\": \"s\", \"signal\": true}]'").map(drop)
            },
        );
    }
}

fn suspend_held(session: &mut Session, awaited: &str) {
    let grant = session.own_one("work");
    suspend(session, &grant, &format!("depends_on => '{awaited}'")).unwrap();
}
