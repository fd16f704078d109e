//! Settled tasks go when their retention is over. That frees and deletes nothing else: whoever waited
//! for them has counted them already.

use std::collections::{BTreeSet, HashMap};

use pgrx::pg_sys::{INT4OID, INT8ARRAYOID, TIMESTAMPTZOID};

use crate::claim::merge;
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, args};
use crate::settle::forget_progress;
use crate::state::Outcome;
use crate::store::{attempts, live, tally};

/// Walks `settled_expires_idx`.
static EXPIRED: Statement = Statement::new(
    c"SELECT s.task_no, s.code FROM taskq.settled s WHERE s.expires_at <= $1
       ORDER BY s.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED",
    &[TIMESTAMPTZOID, INT4OID],
);
static REMOVE_SETTLED: Statement =
    Statement::new(c"DELETE FROM taskq.settled s WHERE s.task_no = ANY ($1)", &[INT8ARRAYOID]);
static REMOVE_EDGES_AFTER: Statement =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.after_no = ANY ($1)", &[INT8ARRAYOID]);
static REMOVE_EDGES_RUN: Statement =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.run_no = ANY ($1)", &[INT8ARRAYOID]);
static REMOVE_TASKS: Statement = Statement::new(
    c"DELETE FROM taskq.task t WHERE t.task_no = ANY ($1)
      RETURNING t.task_no, t.group_id, t.merge_key",
    &[INT8ARRAYOID],
);

/// Removes `task` rows, and the rows of merge keys that nobody has any more; returns how many tasks. `ends`
/// are those of the tasks that had settled.
pub(crate) fn remove_tasks(task_nos: &[i64], ends: &HashMap<i64, Outcome>, now: Time) -> i64 {
    let removed: Vec<(i64, Option<String>, Option<String>)> =
        REMOVE_TASKS.query(args![task_nos], |row| (row.need(1), row.get(2), row.get(3)));
    let grouped = removed.iter().filter_map(|(n, group, _)| Some((group.as_deref()?, ends.get(n).copied())));
    tally::removed(grouped, now);
    let count = removed.len() as i64;
    let keys: BTreeSet<(String, String)> =
        removed.into_iter().filter_map(|(_, group, key)| Some((group.unwrap_or_default(), key?))).collect();
    merge::tidy(&keys.into_iter().collect::<Vec<_>>());
    count
}

/// Removes up to `bound` tasks whose retention is over; returns how many. Waits for nobody: a task with a dependency that
/// somebody else is removing is left for later.
pub(crate) fn sweep(bound: i32, now: Time) -> usize {
    let mut ends: HashMap<i64, Outcome> = EXPIRED
        .query(args![now, bound], |row| (row.need(1), Outcome::from_stored(row.need(2))))
        .into_iter()
        .collect();
    if ends.is_empty() {
        return 0;
    }
    // Nobody can add a dependency from here on: he would hold the task's row.
    let edges = live::try_lock_edges_of(&ends.keys().copied().collect::<Vec<_>>());
    if !edges.busy.is_empty() {
        ends.retain(|task_no, _| !edges.busy.contains(task_no));
    }
    let task_nos: Vec<i64> = ends.keys().copied().collect();
    if edges.any {
        REMOVE_EDGES_AFTER.execute(args![task_nos.as_slice()]);
        REMOVE_EDGES_RUN.execute(args![task_nos.as_slice()]);
    }
    REMOVE_SETTLED.execute(args![task_nos.as_slice()]);
    forget_progress(&task_nos);
    attempts::forget(&task_nos);
    remove_tasks(&task_nos, &ends, now);
    task_nos.len()
}
