//! Callers under REPEATABLE READ and SERIALIZABLE, whose snapshot is older than what others did: a call either works
//! on what is there now, or fails with 40001 and works when repeated. It never works on what was there before.

use serde_json::json;
use taskq_tests::{Db, Grant, Session, sqlstate, until};

const ISOLATIONS: [&str; 2] = ["REPEATABLE READ", "SERIALIZABLE"];

/// Opens a transaction and takes its snapshot. That reads, and a SERIALIZABLE transaction may fail at that already.
fn begin(session: &mut Session, isolation: &str) {
    let open = format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM taskq.tasks");
    until("the transaction begins", || match session.batch_execute(&open) {
        Ok(()) => Some(()),
        Err(error) => {
            assert_eq!(sqlstate(&error), "40001", "{error:?}");
            session.run("ROLLBACK");
            None
        }
    });
}

/// Repeats a transaction that fails to serialise, as every client of such a level must.
fn repeat(
    session: &mut Session,
    isolation: &str,
    call: impl Fn(&mut Session) -> Result<(), postgres::Error>,
) {
    until("the transaction serialises", || {
        begin(session, isolation);
        let done = call(session).and_then(|()| session.batch_execute("COMMIT"));
        match done {
            Ok(()) => Some(()),
            Err(error) => {
                assert_eq!(sqlstate(&error), "40001", "{error:?}");
                session.run("ROLLBACK");
                None
            }
        }
    });
}

/// Finishes an open transaction of `call`, or repeats it if it fails to serialise.
fn finish(
    session: &mut Session,
    isolation: &str,
    first_try: Result<(), postgres::Error>,
    call: impl Fn(&mut Session) -> Result<(), postgres::Error>,
) {
    if let Err(error) = first_try.and_then(|()| session.batch_execute("COMMIT")) {
        assert_eq!(sqlstate(&error), "40001", "{error:?}");
        session.run("ROLLBACK");
        repeat(session, isolation, call);
    }
}

fn complete(session: &mut Session, grant: &Grant) -> Result<(), postgres::Error> {
    session.give(&grant.task_id, grant.token, "completed").map(drop)
}

#[test]
fn an_edge_to_a_task_that_settled_after_the_snapshot_is_not_stranded() {
    let db = Db::new();
    for isolation in ISOLATIONS {
        for code in ["completed", "aborted"] {
            db.clear();
            let (mut old, mut watcher) = (db.connect(), db.connect());
            watcher.insert(json!([{"id": "after", "action": "x"}, {"id": "run", "action": "y"}])).unwrap();
            let grant = watcher.own_one("x");
            begin(&mut old, isolation);
            watcher.give("after", grant.token, code).unwrap();
            let edge = |session: &mut Session| session.depend_on("after", "run").map(drop);
            let answer = edge(&mut old);
            finish(&mut old, isolation, answer, edge);
            let granted = watcher.own("w", 1, &["y"]).unwrap().len();
            assert_eq!(
                granted,
                usize::from(code == "completed"),
                "{isolation}: run is {}",
                watcher.state("run")
            );
        }
    }
}

#[test]
fn a_return_hears_of_an_edge_that_came_after_its_snapshot() {
    let db = Db::new();
    for isolation in ISOLATIONS {
        db.clear();
        let (mut old, mut watcher) = (db.connect(), db.connect());
        watcher.insert(json!([{"id": "after", "action": "x"}, {"id": "run", "action": "y"}])).unwrap();
        let grant = watcher.own_one("x");
        begin(&mut old, isolation);
        watcher.depend_on("after", "run").unwrap();
        watcher.insert(json!([{"id": "new", "action": "y", "depends_on": ["after"]}])).unwrap();
        let answer = complete(&mut old, &grant);
        finish(&mut old, isolation, answer, |session| complete(session, &grant));
        assert_eq!(watcher.own("w", 5, &["y"]).unwrap().len(), 2, "{isolation}");
    }
}

#[test]
fn a_stale_snapshot_does_not_revive_an_old_token() {
    let db = Db::new();
    for isolation in ISOLATIONS {
        db.clear();
        let (mut old, mut watcher) = (db.connect(), db.connect());
        watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
        let grant = watcher.own_one("x");
        begin(&mut old, isolation);
        watcher.give("a", grant.token, "pending").unwrap();
        let new = watcher.own_one("x");
        let error = complete(&mut old, &grant).unwrap_err();
        assert!(["TQ001", "40001"].contains(&sqlstate(&error)), "{isolation}: {error:?}");
        old.run("ROLLBACK");
        watcher.complete(&new);
    }
}

#[test]
fn a_stale_snapshot_does_not_grant_what_others_hold() {
    let db = Db::new();
    for isolation in ISOLATIONS {
        db.clear();
        let (mut old, mut watcher) = (db.connect(), db.connect());
        watcher.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
        begin(&mut old, isolation);
        let held = watcher.own_one("x");
        match old.own("old", 5, &["x"]) {
            Ok(grants) => {
                assert!(grants.iter().all(|grant| grant.task_id != held.task_id), "{isolation}");
                old.run("COMMIT");
            }
            Err(error) => {
                assert_eq!(sqlstate(&error), "40001", "{isolation}");
                old.run("ROLLBACK");
            }
        }
        watcher.complete(&held);
    }
}

#[test]
fn a_whole_graph_runs_under_each_isolation() {
    let db = Db::new();
    for isolation in ISOLATIONS {
        db.clear();
        let mut session = db.connect();
        let parents = (0..60).map(
            |i| json!({"id": format!("p{i}"), "action": "x", "to_signal_after": [format!("c{}", i % 6)]}),
        );
        let children =
            (0..6).map(|i| json!({"id": format!("c{i}"), "action": "x", "to_signal_after": ["end"]}));
        let end = [json!({"id": "end", "action": "x"})];
        session.insert(parents.chain(children).chain(end).collect()).unwrap();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                db.connect().background(move |session| {
                    until("the last task is settled", || {
                        let mut held = Vec::new();
                        begin(session, isolation);
                        let granted = session.own_with("w", 3, &["x"], "lease => '1 minute'");
                        match granted.and_then(|grants| session.batch_execute("COMMIT").map(|()| grants)) {
                            Ok(grants) => held = grants,
                            Err(error) => {
                                assert_eq!(sqlstate(&error), "40001", "{error:?}");
                                session.run("ROLLBACK");
                            }
                        }
                        for grant in held {
                            repeat(session, isolation, |session| complete(session, &grant));
                        }
                        (session.state("end") == "completed").then_some(())
                    });
                })
            })
            .collect();
        for worker in workers {
            worker.join();
        }
        assert_eq!(
            session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'"),
            67,
            "{isolation}"
        );
    }
}
