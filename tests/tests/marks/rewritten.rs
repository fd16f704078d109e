//! Tables and indexes are written anew, moved and exchanged while claims, returns, extensions and insertions go on.
//!
//! On wrong code a session uses a table or an index that it has kept open or known by its old number, an index misses
//! rows, a call and the session that rewrites a table wait for each other, or a call fails that would have succeeded a
//! moment later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use taskq_tests::{Cluster, Db, Progress, Session};

/// A life of tasks, over and over; counts those that it has completed.
fn work(session: &mut Session, who: usize, over: &AtomicBool, completed: &AtomicUsize) {
    for round in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let (first, second) = (format!("{who}-{round}-a"), format!("{who}-{round}-b"));
        let tasks = json!([
            {"id": first, "action": "x", "group_id": "g", "body": "b"},
            {"id": second, "action": "x", "depends_on": [first]},
        ]);
        session.insert(tasks).unwrap();
        let grants = session.own_with("w", 2, &["x"], "lease => '1 hour'").unwrap();
        let held: Vec<(&str, _)> = grants.iter().map(|g| (g.task_id.as_str(), g.token)).collect();
        if round % 3 == 0 && !held.is_empty() {
            let extended = session.extend("w", &held, "2 hours").unwrap();
            assert!(extended.iter().all(|(_, owned)| *owned), "{extended:?}");
        }
        grants.iter().for_each(|grant| session.complete(grant));
        completed.fetch_add(grants.len(), Ordering::Relaxed);
    }
}

#[test]
fn tables_are_rewritten_and_moved_under_load() {
    const WORKERS: usize = 3;
    // DDL that waits for a lock would hold up the workers, and they each other.
    let cluster = Cluster::start(
        env!("CARGO_TARGET_TMPDIR"),
        "own-rewritten",
        &["allow_in_place_tablespaces=on", "deadlock_timeout=200ms", "fsync=off"],
    );
    let mut session = cluster.connect();
    session.run("CREATE TABLESPACE elsewhere LOCATION ''");
    session.run("CREATE EXTENSION amcheck");
    let (over, completed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> = (0..WORKERS)
        .map(|who| {
            let (over, completed) = (over.clone(), completed.clone());
            cluster.connect().background(move |session| work(session, who, &over, &completed))
        })
        .collect();
    // Three rounds, and as many more as the workers need beside them on this machine.
    for round in 0.. {
        if round >= 3 && completed.load(Ordering::Relaxed) > 100 {
            break;
        }
        assert!(round < 100, "the workers have hardly worked");
        let to = ["elsewhere", "pg_default"][round % 2];
        for table in ["run", "task", "settled", "lease", "dependency", "blocked"] {
            session.run(&format!("ALTER TABLE taskq.{table} SET TABLESPACE {to}"));
            session.run(&format!("REINDEX TABLE CONCURRENTLY taskq.{table}"));
            session.run(&format!("VACUUM FULL taskq.{table}"));
            session.run(&format!("REINDEX TABLE taskq.{table}"));
        }
        session.run("CLUSTER taskq.run USING run_pkey");
        session.run("CLUSTER taskq.task USING task_pkey");
        session.run("ALTER INDEX taskq.run_pkey RENAME TO run_pkey_for_a_moment; ALTER INDEX taskq.run_pkey_for_a_moment RENAME TO run_pkey");
    }
    over.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| drop(worker.join()));
    let mut completed = completed.load(Ordering::Relaxed);
    loop {
        let grants = session.own("w", 100, &["x"]).unwrap();
        grants.iter().for_each(|grant| session.complete(grant));
        completed += grants.len();
        if grants.is_empty() {
            break;
        }
    }
    let (all, ended): (i64, i64) = (
        session.one("SELECT count(*) FROM taskq.tasks"),
        session.one("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'"),
    );
    assert_eq!((all, ended), (completed as i64, completed as i64), "each once");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.lease"), 0);
    session.run(
        "SELECT bt_index_check(i.indexrelid, true) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
          WHERE c.relnamespace = 'taskq'::regnamespace",
    );
    assert_eq!(session.broken(), Vec::<String>::new());
}

/// `ALTER TABLE` gives all rows to the transaction that rewrites them: to a snapshot from before its commit the table
/// is empty. A call that waits for the table looks with a newer one, as a statement does. On wrong code a signal is
/// lost for good, or a return is refused though no other worker has the task.
#[test]
fn a_call_that_waits_for_a_table_to_be_rewritten_sees_its_rows() {
    let (db, [mut session, mut owner]) = Db::connected();
    let tables: Vec<String> = session.all(
        "SELECT c.relname::text FROM pg_class AS c
          WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'r' ORDER BY c.relname",
    );
    assert!(tables.len() > 15);
    for (round, table) in tables.iter().enumerate() {
        let [parent, child, other] = ["parent", "child", "other"].map(|name| format!("{name} {round}"));
        session
            .insert(json!([
                {"id": parent, "action": "x"}, {"id": child, "action": "y", "depends_on": [parent]}, {"id": other, "action": "z"},
            ]))
            .unwrap();
        let grant = session.own_with("w", 1, &["x"], "lease => '1 hour'").unwrap().remove(0);
        session
            .query_one(
                "SELECT taskq.report_status($1, $2, 'half', checkpoint => '1')",
                &[&grant.task_id, &grant.token],
            )
            .unwrap();
        for (what, to) in
            [("extend", "UNLOGGED"), ("return", "LOGGED"), ("own", "UNLOGGED"), ("insert", "LOGGED")]
        {
            owner.run(&format!("BEGIN; ALTER TABLE taskq.{table} SET {to}"));
            let (id, token, more) = (grant.task_id.clone(), grant.token, format!("more {round}"));
            let call = db.connect().background(move |s| match what {
                "extend" => {
                    assert_eq!(s.extend("w", &[(&id, token)], "2 hours").unwrap(), [(id.clone(), true)])
                }
                "return" => {
                    s.query_one("SELECT taskq.return_task($1, $2)", &[&id, &token]).unwrap();
                }
                "own" => {
                    assert_eq!(s.own_with("w", 9, &["y", "z"], "lease => '1 hour'").unwrap().len(), 2)
                }
                _ => {
                    s.insert(json!([{"id": more, "action": "never", "depends_on": [id]}])).unwrap();
                }
            });
            call.settle_down(&mut session);
            owner.run("COMMIT");
            call.join();
        }
        assert_eq!(session.state(&parent), "completed", "{table}");
        assert_eq!(session.state(&child), "in-progress", "{table}");
        assert_eq!(session.state(&format!("more {round}")), "ready", "{table}");
    }
}

/// The same between the moment at which a call takes its snapshot and that at which it locks the table, which nothing keeps from
/// it then: it is held up in between because it has to look the table up in a catalog that is locked.
#[test]
fn a_call_whose_table_is_rewritten_before_it_locks_it_sees_its_rows() {
    let (db, [mut session, mut owner]) = Db::connected();
    let mut held_up = 0;
    for table in ["run", "task", "dependency", "blocked", "countdown", "lease", "settled", "action"] {
        let [parent, child] = ["parent", "child"].map(|name| format!("{name} of {table}"));
        let tasks =
            json!([{"id": parent, "action": "x"}, {"id": child, "action": "y", "depends_on": [parent]}]);
        session.insert(tasks).unwrap();
        let lease = "lease => '1 hour'";
        let token = session.own_with("w", 1, &["x"], lease).unwrap().remove(0).token;
        for round in ["extend", "return", "own"] {
            let mut worker = db.connect();
            // It has done all this before, so that it knows everything but what is changed now.
            session.insert(json!([{"id": format!("{round} {table}"), "action": "warm"}])).unwrap();
            let warm = worker.own_with("w", 1, &["warm"], lease).unwrap().remove(0);
            worker.extend("w", &[(&warm.task_id, warm.token)], "2 hours").unwrap();
            worker.complete(&warm);
            owner.run(&format!("ALTER TABLE taskq.{table} SET UNLOGGED"));
            owner
                .run(&format!("BEGIN; ALTER TABLE taskq.{table} SET LOGGED; LOCK TABLE pg_catalog.pg_class"));
            let id = parent.clone();
            let call = worker.background(move |worker| match round {
                "extend" => {
                    assert_eq!(worker.extend("w", &[(&id, token)], "2 hours").unwrap(), [(id.clone(), true)])
                }
                "return" => {
                    worker.query_one("SELECT taskq.return_task($1, $2)", &[&id, &token]).unwrap();
                }
                _ => assert_eq!(worker.own_with("w", 9, &["y"], lease).unwrap().len(), 1),
            });
            held_up += usize::from(call.settle_down(&mut owner) == Progress::Blocked);
            owner.run("COMMIT");
            call.join();
        }
        assert_eq!(session.state(&parent), "completed", "{table}");
        assert_eq!(session.state(&child), "in-progress", "{table}");
    }
    assert!(held_up > 8, "only {held_up} calls were held up");
}
