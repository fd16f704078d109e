//! Steps of durable tasks, and tasks that start over.
//!
//! A step that is stored twice, or whose first result is overwritten, does a payment twice; a rerun that counts an end twice, or
//! forgets one, starts a task before its time or never. All of that fails here, or in the look at the invariants with which each
//! test ends.

mod beside;
mod kept;
mod own;
mod rerun;
mod rerun_alone;
mod rerun_beside;
mod rerun_refused;
mod rewind;
mod save;

use serde_json::Value;
use taskq_tests::{Answer, Grant, Session};

/// `save_step`: what is stored.
fn save(session: &mut Session, grant: &Grant, step: &str, result: Option<Value>) -> Answer<Option<Value>> {
    let query = "SELECT taskq.save_step($1, $2, $3, $4)";
    Ok(session.query_one(query, &[&grant.task_id, &grant.token, &step, &result])?.get(0))
}

/// The steps of a task in their order: position, name, number of the try, result.
fn steps(session: &mut Session, id: &str) -> Vec<String> {
    let query = "SELECT concat_ws(' ', position, step, num_try, result) FROM taskq.steps WHERE task_id = $1 ORDER BY position";
    session.query(query, &[&id]).unwrap().iter().map(|row| row.get(0)).collect()
}

fn rerun(session: &mut Session, ids: &[&str]) -> i64 {
    session.query_one("SELECT taskq.rerun_tasks($1)", &[&ids]).unwrap().get(0)
}

fn rewind(session: &mut Session, id: &str, step: &str) -> i64 {
    session.query_one("SELECT taskq.rewind_task($1, $2)", &[&id, &step]).unwrap().get(0)
}

/// The states of tasks, in the order asked for.
fn states<const N: usize>(session: &mut Session, ids: [&str; N]) -> [String; N] {
    ids.map(|id| session.state(id))
}

/// State, signals, dependencies in all, failures.
fn counts(session: &mut Session, id: &str) -> (String, i32, i32, i32) {
    let task = session.task(id).unwrap();
    (task.state, task.num_signals, task.total_dependencies, task.num_failures)
}

/// A ready task waits for these others, as though its worker had suspended it: that leaves the same rows.
fn suspend(session: &mut Session, id: &str, after: &[&str]) {
    let waits = "WITH me AS (SELECT task_no FROM taskq.task WHERE id = $1),
                      others AS (SELECT task_no FROM taskq.task WHERE id = ANY ($2)),
                      gone AS (DELETE FROM taskq.run USING me WHERE run.task_no = me.task_no RETURNING run.*),
                      edges AS (INSERT INTO taskq.dependency (after_no, run_no, wait_no, condition, state, suspending)
                                SELECT o.task_no, me.task_no, 77, 's', 'w', true FROM me, others AS o RETURNING 1)
                 INSERT INTO taskq.blocked (task_no, remaining, failures, dependencies, tries, action_no, spare, wait_no, since)
                 SELECT g.task_no, n.n, g.failures, g.dependencies + n.n, g.tries, g.action_no, 0, 77, now()
                   FROM gone AS g, (SELECT count(*)::integer AS n FROM edges) AS n";
    assert_eq!(session.execute(waits, &[&id, &after]).unwrap(), 1, "{id} is ready");
}
