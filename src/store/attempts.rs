//! The history of tries. The last try of a settled task is in `settled`; these are the others.

use std::collections::HashMap;

use pgrx::pg_sys::{INT4ARRAYOID, INT8ARRAYOID, TEXTARRAYOID, TEXTOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID};

use super::live::Live;
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, args};

static RECORD: Statement = Statement::new(
    c"INSERT INTO taskq.attempt (task_no, num_try, started_at, ended_at, outcome, actor_id, status)
      SELECT u.task_no, u.num_try, u.started_at, $6, $7, u.actor_id, u.status
        FROM unnest($1, $2, $3, $4, $5) AS u(task_no, num_try, started_at, actor_id, status)",
    &[INT8ARRAYOID, INT4ARRAYOID, TIMESTAMPTZARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID, TEXTOID],
);

/// Records tries that end now without settling their tasks.
pub(crate) fn record(ended: &[(&Live, Option<String>)], outcome: &str, now: Time) {
    if ended.is_empty() {
        return;
    }
    RECORD.execute(args![
        ended.iter().map(|(l, _)| l.task_no).collect::<Vec<_>>(),
        ended.iter().map(|(l, _)| l.tries).collect::<Vec<_>>(),
        ended.iter().map(|(l, _)| l.granted_at).collect::<Vec<_>>(),
        ended.iter().map(|(l, _)| l.actor_id.clone()).collect::<Vec<_>>(),
        ended.iter().map(|(_, status)| status.clone()).collect::<Vec<_>>(),
        now,
        outcome,
    ]);
}

static TIMEOUTS: Statement = Statement::new(
    c"SELECT a.task_no, pg_catalog.count(*)::integer FROM taskq.attempt a
       WHERE a.task_no = ANY ($1) AND a.outcome = 'timeout' AND NOT a.past
       GROUP BY a.task_no",
    &[INT8ARRAYOID],
);

/// How many deadlines of these tasks have passed since they were inserted, or retried. Counted from the
/// history, so that it does not matter where a task has been meanwhile.
pub(crate) fn timeouts(task_nos: &[i64]) -> HashMap<i64, i32> {
    if task_nos.is_empty() {
        return HashMap::new();
    }
    TIMEOUTS.query(args![task_nos], |row| (row.need(1), row.need(2))).into_iter().collect()
}

static MAKE_PAST: Statement = Statement::new(
    c"UPDATE taskq.attempt a SET past = true WHERE a.task_no = ANY ($1) AND NOT a.past",
    &[INT8ARRAYOID],
);
static KEEP_LAST: Statement = Statement::new(
    c"INSERT INTO taskq.attempt (task_no, num_try, started_at, ended_at, outcome, actor_id, status, past)
      SELECT s.task_no, s.tries, s.granted_at, s.settled_at,
             CASE WHEN s.code = 'c' THEN 'completed' WHEN s.cause = 't' THEN 'timeout'
                  WHEN s.cause = 'c' THEN 'cancelled' ELSE 'aborted' END,
             s.actor_id, s.status, true
        FROM taskq.settled s WHERE s.task_no = ANY ($1) AND s.granted_at IS NOT NULL",
    &[INT8ARRAYOID],
);

/// Makes the last tries of settled tasks history, before their `settled` rows go, and all of it a thing of
/// the past: what is counted is counted anew.
pub(crate) fn keep_last(task_nos: &[i64]) {
    MAKE_PAST.execute(args![task_nos]);
    KEEP_LAST.execute(args![task_nos]);
}

static FORGET: Statement =
    Statement::new(c"DELETE FROM taskq.attempt a WHERE a.task_no = ANY ($1)", &[INT8ARRAYOID]);

/// Forgets the history of tasks that are gone or start anew.
pub(crate) fn forget(task_nos: &[i64]) {
    FORGET.execute(args![task_nos]);
}
