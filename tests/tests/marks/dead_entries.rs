//! Claims behind what is dead: while a snapshot is held, tasks that are done leave their entries in the index of
//! claiming, any number of them.
//!
//! Why: a call that walked over 150,000 of them took longer than a task lived in the hands of the other workers. Each
//! walk found something, came too late, and began anew: for half a minute, with a transaction id that kept the marks of
//! all sessions where they were. Entries of the index and pages are counted, not seconds.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use taskq_tests::{Cluster, Db, Session, until};

const MANY: usize = 20_000;

fn tasks(count: usize) -> Value {
    (0..count).map(|_| json!({"action": "x"})).collect()
}

fn read_on(db: &Db) -> Session {
    let mut reader = db.connect();
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let _: i64 = reader.one("SELECT count(*) FROM taskq.run");
    reader
}

/// So many tasks, done a thousand at a time.
fn perform(session: &mut Session, count: usize) {
    for _ in 0..count / 1_000 {
        session.insert(tasks(1_000)).unwrap();
        let done: i64 = session.one(
            "SELECT count(*)
               FROM (SELECT array_agg(o.task_id) AS ids, array_agg(o.token) AS tokens
                       FROM taskq.own_tasks('w', 1000, '{x}') AS o) AS o
              CROSS JOIN LATERAL taskq.return_tasks(o.ids, o.tokens, 'completed')",
        );
        assert_eq!(done, 1_000);
    }
}

/// Has it look now and then, until a claim of it begins behind what is done.
fn until_its_marks_have_moved(session: &mut Session) {
    until("its marks have moved", || {
        session.insert(tasks(1)).unwrap();
        session.perform("x", "completed");
        (entries_of_a_claim(session) < 2_000).then_some(())
    });
}

/// How many entries of the index of claiming a claim comes upon, which is rolled back.
fn entries_of_a_claim(session: &mut Session) -> i64 {
    let count = "SELECT pg_stat_get_xact_tuples_returned('taskq.run_claim_idx'::regclass)";
    session.run("BEGIN");
    // With those of earlier transactions that were not reported yet.
    let before: i64 = session.one(count);
    session.own("w", 1, &["x"]).unwrap();
    let after: i64 = session.one(count);
    session.run("ROLLBACK");
    after - before
}

#[test]
fn a_walk_that_takes_longer_than_an_entry_lives_is_not_walked_again_and_again() {
    let (db, [mut session]) = Db::connected();
    let _reader = read_on(&db);
    perform(&mut session, MANY);
    until_its_marks_have_moved(&mut session);
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mut worker in [session, db.connect()] {
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    worker.insert(tasks(1)).unwrap();
                    for grant in worker.own("w", 1, &["x"]).unwrap() {
                        worker.complete(&grant);
                    }
                }
            });
        }
        let mut control = db.connect();
        let walked: Vec<i64> = (0..8)
            .map(|_| {
                let mut fresh = db.connect();
                let walked = entries_of_a_claim(&mut fresh);
                control.run("SELECT pg_sleep(0.05)");
                walked
            })
            .collect();
        over.store(true, SeqCst);
        let done: i64 = control.one("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'");
        let most = *walked.iter().max().unwrap();
        assert!(most < 2 * done, "{walked:?} entries in a claim, of {done} tasks that are done");
    });
}

/// Tasks that come and go in one transaction of another session: no call of the one that looks has seen any of them.
fn come_and_go(mut others: Session, begin: &str) {
    others.run(begin);
    perform(&mut others, MANY);
    others.run("COMMIT");
}

#[test]
fn a_session_that_is_granted_nothing_does_not_walk_over_the_same_again_and_again() {
    let (db, [mut session]) = Db::connected();
    let _reader = read_on(&db);
    come_and_go(db.connect(), "BEGIN");
    // Also where an action has a limit, and a claim chooses.
    for limit in ["NULL", "5"] {
        let mut idle = db.connect();
        session.run(&format!("SELECT taskq.set_action('x', max_concurrency => {limit})"));
        let first = entries_of_a_claim(&mut idle);
        assert!(first > MANY as i64, "without marks it walks over {first} entries");
        until("its marks have moved", || (entries_of_a_claim(&mut idle) < 2_000).then_some(()));
    }
}

/// A call that sleeps keeps by its snapshot what dies meanwhile. Whatever is committed elsewhere on the server, it looks again
/// now and then, and walks over the same entries two or three times in all. In a cluster of its own: a transaction that has an id and
/// stays open, of whatever database, keeps the marks where they are.
#[test]
fn nor_does_a_call_that_sleeps() {
    let cluster = Cluster::start(env!("CARGO_TARGET_TMPDIR"), "marks-sleeps", &["autovacuum=off"]);
    let (mut session, mut watcher) = (cluster.connect(), cluster.connect());
    session.insert(json!([{"id": "last", "action": "x", "delay": "9 s"}])).unwrap();
    session.run("SET taskq.shortest_sleep = 10");
    let sleeper = session.background(|session| {
        let count = "SELECT pg_stat_get_xact_tuples_returned('taskq.run_claim_idx'::regclass)";
        session.run("BEGIN");
        let before: i64 = session.one(count);
        let own = "SELECT count(*) FROM taskq.own_tasks('w', 1, '{x}', wait => '20 s')";
        assert_eq!(session.one::<i64>(own), 1);
        session.one::<i64>(count) - before
    });
    watcher.until_asleep(sleeper.pid());
    // Its looks wait for the commit: before, each would walk over what is there by then.
    come_and_go(cluster.connect(), "BEGIN; LOCK TABLE taskq.run IN ACCESS EXCLUSIVE MODE");
    let over = &AtomicBool::new(false);
    let mut elsewhere = cluster.connect_to("template1");
    let walked = std::thread::scope(|scope| {
        scope.spawn(move || {
            while !over.load(SeqCst) {
                elsewhere.run("SELECT pg_current_xact_id()");
                sleep(Duration::from_millis(2));
            }
        });
        let (_session, walked) = sleeper.join();
        over.store(true, SeqCst);
        walked
    });
    assert!(walked < 6 * MANY as i64, "a sleeping call walked over {walked} entries, of {MANY} dead ones");
}

#[test]
fn a_call_that_comes_to_nothing_has_no_transaction_id() {
    let (_db, [mut session, mut other]) = Db::with_tasks(json!([{"action": "x"}, {"action": "y"}]));
    other.run("BEGIN");
    assert_eq!(other.own("w", 2, &["x", "y"]).unwrap().len(), 2);
    for actions in ["{x}", "{x,y}"] {
        session.run("BEGIN");
        let own = format!("SELECT count(*) FROM taskq.own_tasks('w', 1, '{actions}')");
        assert_eq!(session.one::<i64>(&own), 0);
        let id: Option<String> = session.one("SELECT pg_current_xact_id_if_assigned()::text");
        assert_eq!(id, None, "{actions}");
        session.run("COMMIT");
    }
}

#[test]
fn a_lease_counts_from_the_grant() {
    let (_db, [session, mut other]) = Db::with_tasks(tasks(2));
    // The call has begun when it comes to the lock, as when it walks over much that is dead.
    other.run("BEGIN; LOCK TABLE taskq.run IN ACCESS EXCLUSIVE MODE");
    let call = session.background(|session| {
        session.run(
            "CREATE TEMP TABLE owned AS
             SELECT o.action_deadline > clock_timestamp() AS runs
               FROM taskq.own_tasks('w', 2, '{x}', lease => '1 second') AS o",
        );
        session.one::<String>("SELECT count(*) FILTER (WHERE runs) || ' of ' || count(*) FROM owned")
    });
    sleep(Duration::from_millis(1_300));
    other.run("COMMIT");
    assert_eq!(call.join().1, "2 of 2", "deadlines that have not passed when they are handed out");
}
