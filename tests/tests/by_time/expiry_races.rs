//! Expiry beside grants, and beside those that have the rows in hand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use taskq_tests::{Db, until};

use crate::{at, ends};

#[test]
fn a_task_is_granted_or_has_expired_and_never_both() {
    let (db, [mut session]) = Db::connected();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..2 {
            let (db, over) = (&db, &over);
            scope.spawn(move || {
                let mut worker = db.connect();
                while !over.load(Ordering::Relaxed) {
                    for grant in worker.own(&format!("w{n}"), 3, &["x"]).unwrap() {
                        worker.complete(&grant);
                    }
                }
            });
            scope.spawn(move || {
                let mut keeper = db.connect();
                while !over.load(Ordering::Relaxed) {
                    keeper.run("SELECT taskq.maintain()");
                }
            });
        }
        for round in 0..60 {
            // They expire while they are granted.
            session.run(&format!(
                "SELECT count(taskq.insert_task('{round}-' || n, 'x', expires_in => n * interval '1 millisecond'))
                   FROM generate_series(1, 20) AS n"
            ));
        }
        let left = "SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')";
        while session.one::<i64>(left) > 0 {
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
    });
    let wrong = "SELECT count(*) FROM taskq.tasks
                  WHERE (state = 'aborted') <> (num_tries = 0) OR (state = 'aborted') <> (cause IS NOT DISTINCT FROM 'expired')";
    assert_eq!(session.one::<i64>(wrong), 0);
    let late = "SELECT count(*) FROM taskq.tasks WHERE state = 'completed' AND owned_at > expires_at + interval '1 second'";
    assert_eq!(session.one::<i64>(late), 0, "none is granted long after");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.expiry"), 0);
}

#[test]
fn it_waits_for_no_other_and_no_other_for_it() {
    let (_db, [mut session, mut other]) = Db::connected();
    for s in [&mut session, &mut other] {
        s.run("SET lock_timeout = '20s'");
        s.set_now(Some("2030-01-01 00:00Z"));
    }
    session.run(
        "SELECT taskq.insert_task('referred', 'x', expires_in => '1 minute');
         SELECT taskq.insert_task('changed', 'x', delay => '2 minutes', expires_in => '1 minute');
         SELECT taskq.insert_task('free', 'x', expires_in => '1 minute');
         SELECT taskq.insert_task('held', 'y', expires_in => '1 minute')",
    );
    let held = session.own_one("y");
    other.run("BEGIN; SELECT taskq.insert_task('after', 'z', depends_on => '{referred}'); SELECT taskq.update_tasks('{changed}', body => 'b')");
    at(&mut session, "2030-01-01 00:01Z", "SELECT taskq.maintain(); SELECT taskq.own_tasks('w', 1, '{q}')");
    assert_eq!(
        ends(&mut session),
        ["changed scheduled", "free aborted expired", "held in-progress", "referred ready"]
    );
    other.run("COMMIT");
    // A transaction that stays open has what it has aborted; those that work on the others do not wait for it.
    session.set_now(Some("2030-01-01 00:01Z"));
    session.run("BEGIN; SELECT taskq.own_tasks('w', 1, '{q}')");
    other.complete(&held);
    session.run("COMMIT");
    session.run("SELECT taskq.maintain()");
    assert_eq!(
        ends(&mut session),
        [
            "after aborted dependency",
            "changed aborted expired",
            "free aborted expired",
            "held completed",
            "referred aborted expired",
        ]
    );
}

/// That call has the rider ended by a worker.
#[test]
fn a_leader_does_not_wait_for_a_call_that_stays_open() {
    let (_db, [mut session, mut other]) = Db::connected();
    other.run("SET lock_timeout = '20s'");
    session.run(
        "SELECT taskq.insert_task('leader', 'x', merge_key => 'k', priority => 1);
         SELECT taskq.insert_task('rider', 'x', merge_key => 'k', expires_in => '0.2 seconds')",
    );
    let leader = session.own_one("x");
    std::thread::sleep(std::time::Duration::from_millis(300));
    session.run("BEGIN; SELECT taskq.own_tasks('w', 1, '{q}')");
    until("a worker has ended the rider", || (other.state("rider") == "aborted").then_some(()));
    other.complete(&leader);
    session.run("COMMIT");
    assert_eq!(ends(&mut session), ["leader completed", "rider aborted expired"]);
}
