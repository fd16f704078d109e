//! A call that must be refused because a task is in progress is refused at once.
//!
//! Why: a committer says that the next export is to be done (`replace_tasks`), while a worker, in one transaction, says that
//! one is done and returns it. On wrong code the first waits for the second, who then waits for it: 40P01 for one of
//! them, from the second export on. A wait of any kind runs into the statement timeout here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use taskq_tests::{Db, Progress, Session, sqlstate};

type Answer<T> = Result<T, postgres::Error>;

/// What the committer calls.
fn next() -> Value {
    json!([{"id": "next-export", "action": "export", "depends_on": ["done-export"]}])
}

/// What the worker says of the export that it has done.
fn done() -> Value {
    json!([{"id": "done-export", "action": "note", "spontaneous": true}])
}

/// Two exports have been done before; the third is in progress, with its token.
fn third_export(db: &Db) -> (Session, uuid::Uuid) {
    let mut worker = db.connect();
    worker.insert(done()).unwrap();
    for _ in 0..2 {
        worker.replace(next()).unwrap();
        let grant = worker.own_one("export");
        worker.run("BEGIN");
        worker.replace(done()).unwrap();
        worker.complete(&grant);
        worker.run("COMMIT");
    }
    worker.replace(next()).unwrap();
    let token = worker.own_one("export").token;
    (worker, token)
}

fn refused_at_once<T: std::fmt::Debug>(session: &mut Session, call: impl Fn(&mut Session) -> Answer<T>) {
    session.run("SET statement_timeout = '5s'");
    assert_eq!(sqlstate(&call(session).unwrap_err()), "TQ005");
}

#[test]
fn a_committer_and_a_worker_do_not_meet_in_a_deadlock() {
    // How far the worker has got when the committer calls.
    for steps in 0..3 {
        let db = Db::new();
        let (mut worker, token) = third_export(&db);
        let mut committer = db.connect();
        worker.run("BEGIN");
        if steps > 0 {
            worker.replace(done()).unwrap();
        }
        if steps > 1 {
            assert_eq!(worker.give("next-export", token, "completed").unwrap(), "completed");
        }
        refused_at_once(&mut committer, |session| session.replace(next()));
        if steps < 1 {
            worker.replace(done()).unwrap();
        }
        if steps < 2 {
            assert_eq!(worker.give("next-export", token, "completed").unwrap(), "completed");
        }
        worker.run("COMMIT");
        assert_eq!(committer.replace(next()).unwrap(), ["next-export"]);
        assert_eq!(committer.state("next-export"), "ready");
    }
}

#[test]
fn in_the_other_order_too() {
    for returns_first in [false, true] {
        let db = Db::new();
        let (mut worker, token) = third_export(&db);
        let mut committer = db.connect();
        // The committer has something of its own under way, which is rolled back with the refusal, or kept by a savepoint.
        committer.run("BEGIN; SAVEPOINT s");
        committer.insert(json!([{"id": "push", "action": "note", "depends_on": ["done-export"]}])).unwrap();
        refused_at_once(&mut committer, |session| session.replace(next()));
        committer.run("ROLLBACK TO s");
        worker.run("BEGIN");
        if returns_first {
            worker.give("next-export", token, "completed").unwrap();
            worker.replace(done()).unwrap();
        } else {
            worker.replace(done()).unwrap();
            worker.give("next-export", token, "completed").unwrap();
        }
        refused_at_once(&mut committer, |session| session.replace(next()));
        committer.run("ROLLBACK");
        worker.run("COMMIT");
        committer.replace(next()).unwrap();
    }
}

/// It is granted after the committer has looked, and before it locks the task.
#[test]
fn one_that_is_granted_meanwhile_is_refused_before_anything_else_is_waited_for() {
    granted_meanwhile(0);
}

#[test]
fn one_that_is_granted_meanwhile_among_many() {
    granted_meanwhile(300);
}

/// `others` are replaced along with it.
fn granted_meanwhile(others: usize) {
    let (db, [mut worker, mut holder, mut watcher]) = Db::connected();
    let mut replaced: Vec<Value> =
        (0..others).map(|i| json!({"id": format!("other-{i}"), "action": "other"})).collect();
    // In the order of numbers the task that may not be in progress comes before the one that is waited for.
    worker.insert(json!(replaced)).unwrap();
    worker
        .insert(json!([
            {"id": "z", "action": "z"}, {"id": "p", "action": "z"}, {"id": "q", "action": "z"},
            {"id": "next", "action": "export"}, {"id": "done", "action": "note"}
        ]))
        .unwrap();
    // Edges in both directions wait for the guard of the graph, once it is looked whether anything is in progress.
    holder.run("BEGIN");
    holder.depend_on("p", "q").unwrap();
    replaced
        .push(json!({"id": "next", "action": "export", "depends_on": ["done"], "to_signal_after": ["z"]}));
    let committer = db.connect().background(move |session| {
        session.run("SET statement_timeout = '10s'");
        session.replace(json!(replaced))
    });
    assert_eq!(committer.settle_down(&mut watcher), Progress::Blocked);
    let grant = worker.own_one("export");
    worker.run("BEGIN");
    worker.replace(json!([{"id": "done", "action": "note"}])).unwrap();
    holder.run("COMMIT");
    assert_eq!(sqlstate(&committer.join().1.unwrap_err()), "TQ005", "without waiting for the worker");
    worker.complete(&grant);
    worker.run("COMMIT");
}

/// Many of both, at the same time.
#[test]
fn one_export_after_the_other_under_eight_committers() {
    let (db, [mut main]) = Db::with_tasks(done());
    main.replace(next()).unwrap();
    let left = Arc::new(AtomicU32::new(8));
    let committers: Vec<_> = (0..8)
        .map(|_| {
            let left = left.clone();
            db.connect().background(move |session| {
                for _ in 0..100 {
                    if let Err(error) = session.replace(next())
                        && sqlstate(&error) != "TQ005"
                    {
                        left.store(0, Ordering::Relaxed);
                        panic!("{error:?}");
                    }
                }
                left.fetch_sub(1, Ordering::Relaxed);
            })
        })
        .collect();
    while left.load(Ordering::Relaxed) > 0 {
        let Some(grant) = main.own_with("w", 1, &["export"], "wait => '0.1 seconds'").unwrap().pop() else {
            continue;
        };
        main.run("BEGIN");
        main.replace(done()).unwrap();
        assert_eq!(main.give(&grant.task_id, grant.token, "completed").unwrap(), "completed");
        main.run("COMMIT");
    }
    for committer in committers {
        committer.join();
    }
}

#[test]
fn every_call_that_a_task_in_progress_forbids() {
    type Call = fn(&mut Session) -> Answer<()>;
    let calls: [(&str, Call); 6] = [
        ("replace_tasks", |s| {
            s.replace(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).map(drop)
        }),
        ("insert_tasks", |s| {
            s.insert(json!([{"action": "y", "to_signal_after": ["b"], "depends_on": ["a"]}])).map(drop)
        }),
        ("insert_tasks that skips", |s| {
            s.insert_with(
                json!([{"id": "new", "action": "y", "to_signal_after": ["b"]}]),
                "on_conflict => 'skip'",
            )
            .map(drop)
        }),
        ("add_dependencies", |s| s.depend_on("a", "b").map(drop)),
        ("delete_tasks", |s| s.delete(&["a", "b"]).map(drop)),
        ("complete_task", |s| s.batch_execute("SELECT taskq.complete_task('b')")),
    ];
    for (name, call) in calls {
        let (_db, [mut worker, mut other]) =
            Db::with_tasks(json!([{"id": "a", "action": "z"}, {"id": "b", "action": "x"}]));
        let grant = worker.own_one("x");
        // The worker's transaction has both in its hands.
        worker.run("BEGIN");
        worker.run("SELECT taskq.cancel_tasks('{a}')");
        worker.give("b", grant.token, "completed").unwrap();
        other.run("SET statement_timeout = '5s'");
        let error = call(&mut other).unwrap_err();
        assert_eq!(sqlstate(&error), "TQ005", "{name}: {error:?}");
        worker.run("COMMIT");
    }
}

#[test]
fn an_insert_that_is_skipped_is_not_refused() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "z"}, {"id": "b", "action": "x"}]));
    session.own_one("x");
    // It exists and is skipped, with what it says of others.
    let again = json!([{"id": "a", "action": "y", "to_signal_after": ["b"]}]);
    assert!(session.insert_with(again, "on_conflict => 'skip'").unwrap().is_empty());
}
