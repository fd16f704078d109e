//! Claims begin at low-water marks. Whatever happens around them, no task is missed, and by no backend: each has marks
//! of its own.
//!
//! Marks move only when every transaction of the cluster that was running at an earlier look has ended, and other tests
//! run beside these. So what has to move first is waited for where a test needs it.

use std::thread;

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Cluster, Db, Progress, Session, until};

fn tasks(count: usize) -> Value {
    (0..count).map(|_| json!({"action": "x"})).collect()
}

/// Owns and completes so many tasks, one by one: each time the backend looks, and may move its marks.
fn perform(session: &mut Session, count: usize) {
    for _ in 0..count {
        session.perform("x", "completed");
    }
}

/// Completes a few tasks after those that are there, so that marks would pass what is in between.
fn go_on(session: &mut Session, others: &mut Session) {
    for _ in 0..5 {
        others.insert(tasks(3)).unwrap();
        perform(session, 3);
    }
}

#[test]
fn what_is_done_or_in_progress_is_not_walked_over_again() {
    let db = Db::new();
    for (what, code) in [("done, under a snapshot that is held", Some("completed")), ("in progress", None)] {
        db.clear();
        let (mut session, mut reader) = (db.connect(), db.connect());
        session.insert(tasks(3_000)).unwrap();
        reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
        let _: i64 = reader.one("SELECT count(*) FROM taskq.run");
        for grant in session.own("w", 2_900, &["x"]).unwrap() {
            if let Some(code) = code {
                session.give(&grant.task_id, grant.token, code).unwrap();
            }
        }
        let mut fresh = db.connect();
        let walk = fresh.pages_of_a_claim("x");
        assert!(walk > 500, "2,900 tasks {what}: a backend without marks reads {walk} pages");
        until("a claim that begins at a mark reads few pages", || {
            session.own("w", 1, &["x"]).unwrap();
            (session.pages_of_a_claim("x") < 200).then_some(())
        });
    }
}

const CLAIM: &str = "SELECT * FROM taskq.own_tasks('w', 1, '{x}')";

#[test]
#[ignore = "long"]
fn what_the_own_transaction_has_done_is_not_walked_over_again() {
    // Alone: no end of another transaction shows a snapshot that the own id is the only one that runs.
    let cluster = Cluster::start(env!("CARGO_TARGET_TMPDIR"), "marks-alone", &["autovacuum=off"]);
    let mut session = cluster.connect();
    session.insert(json!([{"id": "waited for", "action": "y"}])).unwrap();
    for part in ["", "SAVEPOINT a", "SAVEPOINT b"] {
        session.insert(tasks(4_000)).unwrap();
        session.run("BEGIN");
        session.run(part);
        perform(&mut session, 2_000);
        until("a claim that begins behind what is done reads few pages", || {
            perform(&mut session, 1);
            (session.pages(CLAIM) < 100).then_some(())
        });
        // A savepoint behind which nothing was changed undoes nothing, and so do looks of the queue's own.
        for nothing in [
            "SAVEPOINT c; SELECT 1; ROLLBACK TO SAVEPOINT c",
            "SELECT taskq.wait_for_task('waited for', '0')",
        ] {
            session.run(nothing);
            let read = session.pages(CLAIM);
            assert!(read < 100, "{read} pages after {nothing}");
        }
        session.run("COMMIT");
    }
}

#[test]
fn what_the_own_transaction_undoes_is_found() {
    let db = Db::new();
    for undo in [
        &["ROLLBACK TO SAVEPOINT s"][..],
        &["ROLLBACK"],
        &["PREPARE TRANSACTION 'undone by its own'", "ROLLBACK PREPARED 'undone by its own'"],
    ] {
        db.clear();
        let mut session = db.connect();
        session.insert(tasks(10)).unwrap();
        session.insert(json!([{"id": "early", "action": "x"}])).unwrap();
        session.insert(tasks(1_000)).unwrap();
        perform(&mut session, 10);
        session.run("BEGIN; SELECT taskq.insert_task('y', 'gives the transaction its id'); SAVEPOINT s");
        assert_eq!(session.own_one("x").task_id, "early");
        perform(&mut session, 500);
        until("the claim begins behind what is in progress", || {
            session.pages(CLAIM);
            (session.pages(CLAIM) < 60).then_some(())
        });
        undo.iter().for_each(|statement| session.run(statement));
        assert_eq!(session.own_one("x").task_id, "early", "after {undo:?}");
        session.run("ROLLBACK");
    }
}

#[test]
fn what_a_block_with_an_exception_undoes_is_found() {
    let (_db, [mut session]) = Db::with_tasks(tasks(3_000));
    // Each round grants, completes, and forgets half of it again; what is left has to be all that was forgotten.
    session.run(
        "DO $$
        DECLARE
            g record;
        BEGIN
            FOR i IN 1..1000 LOOP
                BEGIN
                    SELECT * INTO STRICT g FROM taskq.own_tasks('w', 1, '{x}');
                    PERFORM taskq.return_task(g.task_id, g.token, 'completed');
                    IF i % 2 = 0 THEN
                        RAISE EXCEPTION USING ERRCODE = 'P1234';
                    END IF;
                EXCEPTION WHEN SQLSTATE 'P1234' THEN
                END;
            END LOOP;
            FOR i IN 1..2500 LOOP
                SELECT * INTO STRICT g FROM taskq.own_tasks('w', 1, '{x}');
                PERFORM taskq.return_task(g.task_id, g.token, 'completed');
            END LOOP;
        END
        $$",
    );
    assert_eq!(session.own("w", 1, &["x"]).unwrap().len(), 0);
    let done: i64 = session.one("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'");
    assert_eq!(done, 3_000);
}

#[test]
fn what_is_inserted_late_at_an_early_position_is_found() {
    let (_db, [mut session, mut others, mut late]) = Db::connected();
    others.insert(tasks(1)).unwrap();
    perform(&mut session, 1);
    late.run("BEGIN");
    late.insert(json!([{"id": "late", "action": "x"}])).unwrap();
    go_on(&mut session, &mut others);
    late.run("COMMIT");
    assert_eq!(session.own_one("x").task_id, "late");
}

/// The position is taken after the snapshot of a look, and before that reads how far positions have come. The inserter's
/// id is the snapshot's xmax: nothing below that tells that it is open.
#[test]
fn what_takes_its_position_in_the_middle_of_a_look_is_found() {
    let (_db, [mut session, mut others, mut late, mut lock]) = Db::connected();
    for round in 0..3 {
        let id = format!("late {round}");
        others.insert(tasks(1)).unwrap();
        perform(&mut session, 1);
        // The look has its snapshot when it gets to the lock, and goes on to read the sequence behind it.
        lock.run("BEGIN; LOCK TABLE taskq.schedule IN ACCESS EXCLUSIVE MODE");
        let look = session.background(|session| session.own("w", 1, &["x"]).unwrap().len());
        assert_eq!(look.settle_down(&mut others), Progress::Blocked);
        late.run("BEGIN");
        late.insert(json!([{"id": id, "action": "x"}])).unwrap();
        lock.run("COMMIT");
        let (back, found) = look.join();
        session = back;
        assert_eq!(found, 0, "the only task is not committed");
        // Looks that may make a bound of what that one has read.
        for _ in 0..3 {
            assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
        }
        late.run("COMMIT");
        let found = session.own_one("x");
        assert_eq!(found.task_id, id);
        session.complete(&found);
    }
}

#[test]
fn what_a_rolled_back_grant_had_taken_is_found() {
    let (_db, [mut session, mut others, mut open]) = Db::connected();
    others.insert(json!([{"id": "taken", "action": "x"}])).unwrap();
    open.run("BEGIN");
    assert_eq!(open.own_one("x").task_id, "taken");
    go_on(&mut session, &mut others);
    open.run("ROLLBACK");
    assert_eq!(session.own_one("x").task_id, "taken");
}

#[test]
fn what_the_own_savepoint_had_taken_or_cancelled_is_found() {
    let db = Db::new();
    for change in ["SELECT * FROM taskq.own_tasks('w', 1, '{x}')", "SELECT taskq.cancel_tasks('{early}')"] {
        db.clear();
        let (mut session, mut others) = (db.connect(), db.connect());
        others.insert(tasks(1)).unwrap();
        go_on(&mut session, &mut others);
        perform(&mut session, 1);
        others.insert(json!([{"id": "early", "action": "x"}])).unwrap();
        others.insert(tasks(10)).unwrap();
        session.run("BEGIN; SAVEPOINT s");
        session.run(change);
        assert_eq!(session.own("w", 3, &["x"]).unwrap().len(), 3);
        for _ in 0..3 {
            session.own("w", 1, &["x"]).unwrap();
        }
        session.run("ROLLBACK TO SAVEPOINT s");
        assert_eq!(session.own_one("x").task_id, "early", "after {change}");
        session.run("ROLLBACK");
        assert_eq!(session.own_one("x").task_id, "early", "after {change}");
    }
}

#[test]
fn what_comes_back_is_found() {
    let (_db, [mut session, mut others]) = Db::connected();
    others.insert(json!([{"id": "back", "action": "x"}])).unwrap();
    let grant = session.own_one_with("x", "lease => '1 minute'");
    go_on(&mut session, &mut others);
    others.give("back", grant.token, "pending").unwrap();
    let grant = session.own_one_with("x", "lease => '1 millisecond'");
    assert_eq!((grant.task_id.as_str(), grant.num_tries), ("back", 2));
    until("the deadline has passed, and the task is found", || {
        session.own("w", 1, &["x"]).unwrap().first().map(|grant| assert_eq!(grant.task_id, "back"))
    });
}

#[test]
fn priorities_that_are_new_to_the_backend_are_found_in_their_order() {
    let (_db, [mut session, mut others]) = Db::connected();
    let with = |priority: i32| json!([{"id": priority.to_string(), "action": "x", "priority": priority}]);
    for round in 0..3 {
        for priority in [0, 5, i32::MAX, 7, i32::MIN, -2, 6, 100, -1, 3] {
            others.insert(with(priority)).unwrap();
        }
        let order: Vec<String> = (0..10).map(|_| session.own_one("x").task_id).collect();
        let expected = [i32::MAX, 100, 7, 6, 5, 3, 0, -1, -2, i32::MIN].map(|p| p.to_string());
        assert_eq!(order, expected, "round {round}");
        others.run("SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks");
        others.run("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks");
    }
}

#[test]
fn what_is_restored_at_old_positions_is_found() {
    let (_db, [mut session, mut others]) = Db::connected();
    others.insert(json!([{"id": "kept", "action": "x"}])).unwrap();
    others.run("CREATE TABLE kept AS SELECT * FROM taskq.run");
    perform(&mut session, 1);
    go_on(&mut session, &mut others);
    others.run("DELETE FROM taskq.settled WHERE task_no IN (SELECT task_no FROM kept)");
    others.run("BEGIN; TRUNCATE taskq.run; INSERT INTO taskq.run SELECT * FROM kept; COMMIT");
    assert_eq!(session.own_one("x").task_id, "kept");
}

/// At random, and then each backend has to find all that there is.
#[test]
fn every_backend_finds_every_task_after_a_storm() {
    let db = Db::new();
    let mut threads: Vec<_> = (0..6_u64)
        .map(|n| {
            let mut session = db.connect();
            thread::spawn(move || {
                let mut random = Random::new(n);
                for _ in 0..150 {
                    step(&mut session, &mut random);
                }
                session
            })
        })
        .collect();
    let mut sessions: Vec<Session> = threads.drain(..).map(|thread| thread.join().unwrap()).collect();
    sessions[0].insert(tasks(5)).unwrap();
    let ready: i64 = sessions[0].one("SELECT count(*) FROM taskq.tasks WHERE state = 'ready'");
    for (n, session) in sessions.iter_mut().enumerate() {
        for actions in [&["x"][..], &["x", "y"]] {
            session.run("BEGIN");
            let found = session.own("w", 100_000, actions).unwrap().len();
            session.run("ROLLBACK");
            assert_eq!(found as i64, ready, "session {n} finds all of {actions:?}");
        }
    }
    assert_eq!(sessions[0].broken(), Vec::<String>::new());
}

/// One transaction: some inserts, grants, returns and cancels, some of them undone.
fn step(session: &mut Session, random: &mut Random) {
    let in_block = random.chance(60);
    if in_block {
        session.run("BEGIN");
    }
    let mut savepoint = false;
    for _ in 0..=random.below(3) {
        if in_block && random.chance(30) {
            session.run("SAVEPOINT s");
            savepoint = true;
        }
        match random.below(10) {
            0..4 => {
                let priority = random.below(3);
                let count = 1 + random.below(4);
                let tasks: Value = (0..count).map(|_| json!({"action": "x", "priority": priority})).collect();
                session.insert(tasks).unwrap();
            }
            4..9 => {
                let actions: &[&str] = if random.chance(30) { &["x", "y"] } else { &["x"] };
                for grant in session.own("w", 1 + random.below(5) as i32, actions).unwrap() {
                    let code = random.pick(&["completed", "completed", "aborted", "pending"]);
                    if random.chance(90) {
                        session.give(&grant.task_id, grant.token, code).unwrap();
                    }
                }
            }
            _ => {
                for grant in session.own("w", 1, &["x"]).unwrap() {
                    session.cancel(&[&grant.task_id]).unwrap();
                }
            }
        }
        if savepoint && random.chance(30) {
            session.run("ROLLBACK TO SAVEPOINT s");
        }
        if in_block && random.chance(20) {
            thread::sleep(std::time::Duration::from_millis(random.below(5)));
        }
    }
    if in_block {
        session.run(if random.chance(25) { "ROLLBACK" } else { "COMMIT" });
    }
}
