//! Rows are looked for where the session has seen them last, and tables that are empty are not looked into.
//!
//! On wrong code a return changes whatever lies there by now, misses a row that has moved, reads beyond the end of a table that
//! has become shorter, or a session that has found a table empty does not see what others write there.

use serde_json::{Value, json};
use taskq_tests::{Answer, Db, Grant, Session, sqlstate};

fn many(of: &str, n: i32) -> Value {
    (0..n).map(|i| json!({"id": format!("{of}{i:04}"), "action": "x", "body": "b"})).collect()
}

fn own(session: &mut Session) -> Grant {
    session.own_with("w", 1, &["x"], "lease => '1 hour'").unwrap().remove(0)
}

fn refused(answer: Answer<String>, with: &str) {
    assert_eq!(sqlstate(&answer.unwrap_err()), with);
}

fn rows(session: &mut Session, table: &str) -> i64 {
    session.one(&format!("SELECT count(*) FROM taskq.{table}"))
}

/// The tables are written anew between the grants and the returns, and their rows lie elsewhere.
#[test]
fn tables_that_were_rewritten() {
    let (_db, [mut worker, mut other]) = Db::connected();
    other.insert(many("t", 60)).unwrap();
    for rewrite in ["VACUUM FULL taskq.run", "VACUUM FULL taskq.task", "VACUUM FULL taskq.lease"] {
        // Others before them go, so that all move.
        let gone: Vec<Grant> = (0..6).map(|_| own(&mut other)).collect();
        let grants: Vec<Grant> = (0..8).map(|_| own(&mut worker)).collect();
        gone.iter().for_each(|grant| other.complete(grant));
        let ids: Vec<&str> = gone.iter().map(|grant| grant.task_id.as_str()).collect();
        assert_eq!(other.delete(&ids).unwrap(), 6);
        other.run(rewrite);
        grants.iter().for_each(|grant| worker.complete(grant));
        assert_eq!(rows(&mut other, "lease"), 0);
    }
    assert_eq!(rows(&mut other, "settled"), 3 * 8);
}

/// A row that was changed since lies elsewhere, and an older version of it where it lay.
#[test]
fn rows_that_were_changed() {
    let (_db, [mut worker, mut other]) = Db::connected();
    other.insert(many("t", 4)).unwrap();
    let grant = own(&mut worker);
    for _ in 0..3 {
        other.extend("v", &[(&grant.task_id, grant.token)], "2 hours").unwrap();
        other.run("UPDATE taskq.task SET retention = COALESCE(retention, '0 days') + interval '3 days'");
    }
    worker.complete(&grant);
    let kept = "SELECT expires_at > now() + interval '8 days' FROM taskq.settled";
    assert!(worker.one::<bool>(kept), "the newest version is read");

    // Granted in a savepoint that is undone, and once more.
    worker.run("BEGIN; SAVEPOINT s");
    let undone = own(&mut worker);
    worker.run("ROLLBACK TO s");
    let grant = own(&mut worker);
    assert_eq!(grant.task_id, undone.task_id);
    worker.run("COMMIT");
    refused(worker.give(&undone.task_id, undone.token, "completed"), "TQ001");
    worker.complete(&grant);
    assert_eq!(rows(&mut worker, "lease"), 0);
}

/// Another session has returned the task; another row lies by now where its row lay, or nothing does, not even a page.
#[test]
fn places_that_others_have_taken() {
    let (_db, [mut worker, mut other]) = Db::connected();
    other.insert(many("t", 200)).unwrap();
    let grants: Vec<Grant> = (0..200).map(|_| own(&mut worker)).collect();
    grants.iter().for_each(|grant| other.complete(grant));
    other.run("VACUUM taskq.run, taskq.lease");
    other.insert(many("u", 200)).unwrap();
    let of_others: Vec<Grant> = (0..200).map(|_| own(&mut other)).collect();
    for grant in &grants {
        refused(worker.give(&grant.task_id, grant.token, "completed"), "TQ001");
    }
    of_others.iter().for_each(|grant| other.complete(grant));

    other.run("SELECT taskq.delete_tasks((SELECT array_agg(id) FROM taskq.tasks))");
    other.run("VACUUM taskq.run, taskq.lease, taskq.task");
    assert_eq!(other.one::<i64>("SELECT pg_relation_size('taskq.run')"), 0, "or the test shows nothing");
    for grant in &grants[..20] {
        refused(worker.give(&grant.task_id, grant.token, "completed"), "TQ003");
    }
}

/// The first row of a table comes after a session has found it empty, in the same transaction, too.
#[test]
fn tables_that_are_empty_at_first() {
    let (_db, [mut worker, mut other]) = Db::connected();
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let of = isolation.split(' ').next().unwrap().to_lowercase();
        let before = rows(&mut other, "settled");
        other.insert(many(&of, 4)).unwrap();
        let grants: Vec<Grant> = (0..4).map(|_| own(&mut worker)).collect();
        worker.run(&format!("BEGIN ISOLATION LEVEL {isolation}"));
        worker.complete(&grants[0]);
        worker.run("COMMIT");
        // Progress and an edge, of a task that the session has in hand.
        let id = &grants[1].task_id;
        other.run(&format!("SELECT taskq.report_status('{id}', '{}', 'half', 0.5)", grants[1].token));
        other.run(&format!("SELECT taskq.insert_task('after-{of}', 'y', depends_on => '{{{id}}}')"));
        assert_eq!(other.state(&format!("after-{of}")), "blocked");
        worker.run(&format!("BEGIN ISOLATION LEVEL {isolation}"));
        worker.complete(&grants[1]);
        worker.run("COMMIT");
        assert_eq!(other.state(&format!("after-{of}")), "ready");
        assert_eq!(rows(&mut other, "progress"), 0, "it is forgotten with the task's end");
        grants[2..].iter().for_each(|grant| worker.complete(grant));
        assert_eq!(rows(&mut other, "settled"), before + 4);
    }
    // Empty once more, without a page.
    other.run("SELECT taskq.cancel_tasks(actions => '{y}')");
    other.run("VACUUM taskq.progress, taskq.dependency");
    other.insert(many("last", 2)).unwrap();
    let grant = own(&mut worker);
    other.run(&format!("SELECT taskq.insert_task('last', 'y', depends_on => '{{{}}}')", grant.task_id));
    worker.complete(&grant);
    assert_eq!(other.state("last"), "ready");
}
