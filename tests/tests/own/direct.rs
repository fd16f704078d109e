//! What SQL statements gave for free where rows are changed through the table access method itself.
//!
//! On wrong code an index misses the new versions of a full page, a session cannot change a row that it has locked itself,
//! a row that was changed while a call waited is changed in the version that the call saw, a REINDEX meets claims in a
//! deadlock, a read-only transaction writes, or a call cannot see what its own transaction has written.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taskq_tests::{Db, Progress, Session, sqlstate};

fn many(n: i32) -> Value {
    (0..n).map(|i| json!({"id": format!("t{i}"), "action": "x", "body": "b"})).collect()
}

/// Indexes and tables agree, and the queue is sound.
fn sound(session: &mut Session) {
    session.run("CREATE EXTENSION IF NOT EXISTS amcheck");
    session.run(
        "SELECT bt_index_check(i.indexrelid, true) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
          WHERE c.relnamespace = 'taskq'::regnamespace",
    );
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// Every page of `run` fills up with the versions of one transaction, none of which may be pruned: new ones go to other
/// pages, and need index entries.
#[test]
fn versions_on_other_pages_are_in_the_indexes() {
    let (_db, [mut session]) = Db::with_tasks(many(500));
    session.run("BEGIN");
    for _ in 0..4 {
        let grants = session
            .own_with("a worker with a name that takes some room", 500, &["x"], "lease => '1 hour'")
            .unwrap();
        assert_eq!(grants.len(), 500);
        for grant in &grants {
            assert_eq!(session.give(&grant.task_id, grant.token, "pending").unwrap(), "pending");
        }
    }
    session.run("COMMIT");
    sound(&mut session);
    let grants = session.own("w", 1000, &["x"]).unwrap();
    assert_eq!(grants.len(), 500);
    grants.iter().for_each(|grant| session.complete(grant));
    sound(&mut session);
}

#[test]
fn a_call_sees_what_its_transaction_has_written() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "DO $$ DECLARE id text; t uuid; BEGIN
             FOR n IN 1..50 LOOP
                 PERFORM taskq.insert_task('a' || n, 'x', depends_on => CASE WHEN n > 1 THEN ARRAY['a' || n - 1] END);
                 SELECT task_id, token INTO STRICT id, t FROM taskq.own_tasks('w', 1, '{x}');
                 ASSERT id = 'a' || n;
                 BEGIN
                     PERFORM taskq.return_task(id, t);
                     RAISE EXCEPTION 'no';
                 EXCEPTION WHEN raise_exception THEN NULL;
                 END;
                 ASSERT taskq.return_task(id, t)::text = 'completed';
             END LOOP;
         END $$",
    );
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'"), 50);
    sound(&mut session);
}

/// A transaction that has locked the counter itself, by adding an edge, counts it down.
#[test]
fn what_a_transaction_has_locked_itself_it_changes() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "y", "depends_on": ["a"]}]),
    );
    let (a, b) = (session.own_one("x"), session.own_one("x"));
    for counter in ["FOR UPDATE", "FOR NO KEY UPDATE", "FOR KEY SHARE"] {
        session.run("BEGIN");
        session.run(&format!("SELECT FROM taskq.blocked {counter}; SELECT FROM taskq.run {counter}"));
        session.depend_on("b", "c").unwrap();
        session.complete(&a);
        session.complete(&b);
        assert_eq!(session.state("c"), "ready", "{counter}");
        session.own_one("y");
        session.run("ROLLBACK");
    }
    session.complete(&a);
    assert_eq!(session.own_one("y").task_id, "c");
    sound(&mut session);
}

/// While a return waits for another transaction, the row gets a newer version: that one is what is asked for its token.
#[test]
fn a_return_that_waited_goes_by_the_newest_version() {
    let (db, [mut session, mut other, mut watcher]) = Db::connected();
    for stays in [true, false] {
        db.clear();
        session.insert(many(1)).unwrap();
        let grant = session.own_one_with("x", "lease => '1 hour'");
        other.run("BEGIN");
        match stays {
            true => drop(other.extend("worker", &[("t0", grant.token)], "2 hours").unwrap()),
            false => {
                session.give("t0", grant.token, "pending").unwrap();
                drop(other.own_one_with("x", "lease => '2 hours'"));
            }
        }
        let (id, token) = (grant.task_id.clone(), grant.token);
        let returning = db.connect().background(move |session| {
            session.give(&id, token, "completed").map_err(|e| sqlstate(&e).to_owned())
        });
        if stays {
            assert_eq!(returning.settle_down(&mut watcher), Progress::Blocked);
        }
        other.run("COMMIT");
        let (_, answer) = returning.join();
        assert_eq!(answer, if stays { Ok("completed".to_owned()) } else { Err("TQ001".to_owned()) });
        sound(&mut session);
    }
}

#[test]
fn a_return_at_a_higher_level_of_isolation_fails_cleanly_if_its_row_was_changed() {
    let (db, [mut session, mut other, mut watcher]) = Db::connected();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        db.clear();
        session.insert(many(1)).unwrap();
        let grant = session.own_one_with("x", "lease => '1 hour'");
        other.run("BEGIN");
        other.extend("worker", &[("t0", grant.token)], "2 hours").unwrap();
        let (id, token) = (grant.task_id.clone(), grant.token);
        let returning = db.connect().background(move |session| {
            session.run(&format!("BEGIN ISOLATION LEVEL {level}"));
            session.give(&id, token, "completed").map_err(|e| sqlstate(&e).to_owned())
        });
        assert_eq!(returning.settle_down(&mut watcher), Progress::Blocked, "{level}");
        other.run("COMMIT");
        assert_eq!(returning.join().1, Err("40001".to_owned()), "{level}");
        session.complete(&grant);
    }
}

/// The body that `update_tasks` has committed is the one that the next worker gets, whichever call has begun first.
#[test]
fn a_grant_has_the_task_as_it_is_when_it_is_held() {
    let (_db, [mut session, mut other]) = Db::with_tasks(many(1));
    other.run("BEGIN");
    other.run("SELECT taskq.update_tasks('{t0}', body => 'new')");
    assert!(session.own("w", 1, &["x"]).unwrap().is_empty(), "another session is changing it");
    other.run("COMMIT");
    assert_eq!(session.own_one("x").body.as_deref(), Some("new"));
}

#[test]
fn nothing_is_written_in_a_transaction_that_only_reads() {
    let (_db, [mut session]) = Db::with_tasks(many(2));
    let grant = session.own_one("x");
    session.run("SET default_transaction_read_only = on");
    assert_eq!(sqlstate(&session.own("w", 1, &["x"]).unwrap_err()), "25006");
    assert_eq!(sqlstate(&session.give(&grant.task_id, grant.token, "completed").unwrap_err()), "25006");
    session.run("SET default_transaction_read_only = off");
    session.complete(&grant);
}

/// Tables and indexes are rewritten while workers go on in sessions that have used them before.
#[test]
fn rewriting_and_rebuilding_tables_and_indexes_causes_no_deadlock() {
    let (db, [mut session, mut operator]) = Db::with_tasks(many(3000));
    let until = Instant::now() + Duration::from_secs(5);
    let workers: Vec<_> = (0..2)
        .map(|_| {
            db.connect().background(move |session| {
                let mut done = 0;
                while Instant::now() < until {
                    for grant in session.own_with("w", 1, &["x"], "lease => '1 hour'").unwrap() {
                        session.complete(&grant);
                        done += 1;
                    }
                }
                done
            })
        })
        .collect();
    while Instant::now() < until {
        for command in [
            "REINDEX INDEX taskq.lease_deadline_idx",
            "REINDEX TABLE taskq.run",
            "REINDEX INDEX CONCURRENTLY taskq.run_claim_idx",
            "VACUUM FULL taskq.settled",
            "CLUSTER taskq.task USING task_pkey",
            "VACUUM FULL taskq.run",
        ] {
            operator.run(command);
        }
    }
    let done: i32 = workers.into_iter().map(|worker| worker.join().1).sum();
    assert_eq!(
        session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'"),
        i64::from(done)
    );
    sound(&mut session);
}

#[test]
fn the_statistics_of_tables_still_count() {
    let (_db, [mut session]) = Db::with_tasks(many(20));
    for _ in 0..20 {
        let grant = session.own_one("x");
        session.complete(&grant);
    }
    let counted = "SELECT n_tup_upd >= 20 AND n_tup_del >= 20 AND idx_scan > 0 FROM pg_stat_user_tables WHERE relname = 'run'";
    taskq_tests::until("statistics", || {
        session.run("SELECT pg_stat_force_next_flush()");
        session.one::<bool>(counted).then_some(())
    });
}
