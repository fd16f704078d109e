//! Folding deferred signals into the counters they are for.

use pgrx::pg_sys::{INT4OID, INT8ARRAYOID};

use super::signal::{Delta, Deltas, STILL_BLOCKED, apply};
use super::{propagate, store};
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, args};

static ANY: Statement = Statement::new(
    c"SELECT DISTINCT s.run_no FROM (SELECT s.run_no FROM taskq.signal s LIMIT $1) AS s",
    &[INT4OID],
);
static OF: Statement = Statement::new(
    c"SELECT DISTINCT s.run_no FROM taskq.signal s WHERE s.run_no = ANY ($1)",
    &[INT8ARRAYOID],
);
static LOCK: Statement = Statement::new(
    c"SELECT b.task_no FROM taskq.blocked b WHERE b.task_no = ANY ($1) ORDER BY b.task_no FOR UPDATE SKIP LOCKED",
    &[INT8ARRAYOID],
);
static TAKE: Statement = Statement::new(
    c"DELETE FROM taskq.signal s WHERE s.run_no = ANY ($1)
      RETURNING s.run_no, s.satisfied, s.failed, s.lost, s.lost_status",
    &[INT8ARRAYOID],
);

/// Signals of tasks that do not wait any more. Whoever else is removing some of them does not wait for us either.
static SWEEP: Statement = Statement::new(
    c"DELETE FROM taskq.signal d
       WHERE d.ctid = ANY (ARRAY(
               SELECT s.ctid FROM taskq.signal s WHERE s.run_no = ANY ($1) FOR UPDATE SKIP LOCKED))",
    &[INT8ARRAYOID],
);

/// Folds up to about `limit` deferred signals; returns whether it changed anything.
pub(crate) fn some(limit: i32, now: Time) -> bool {
    let waiting: Vec<i64> = ANY.query(args![limit], |row| row.need(1));
    fold(waiting, now)
}

/// Folds the deferred signals of these tasks; returns whether it changed anything.
pub(crate) fn of(task_nos: &[i64], now: Time) -> bool {
    let waiting: Vec<i64> = OF.query(args![task_nos], |row| row.need(1));
    fold(waiting, now)
}

/// Removes the signals of tasks that do not wait and are about to begin anew: what is due to them is worked out
/// from their dependencies, so that a signal of their earlier life would count twice. The caller has locked all that
/// they wait for, and so waited for whoever was sending one.
pub(crate) fn forget(task_nos: &[i64]) {
    SWEEP.execute(args![task_nos]);
}

fn fold(waiting: Vec<i64>, now: Time) -> bool {
    if waiting.is_empty() {
        return false;
    }
    // The counter first, then its signals with a newer snapshot: nobody else can take them meanwhile,
    // and those committed before the lock was had are seen.
    let ours: Vec<i64> = LOCK.query(args![waiting.as_slice()], |row| row.need(1));
    // Signals of a task that does not wait any more are of no use to anybody. Its counter cannot come
    // back before this transaction ends: they were committed while it existed.
    let existing: std::collections::HashSet<i64> =
        STILL_BLOCKED.query(args![waiting.as_slice()], |row| row.need(1)).into_iter().collect();
    let over: Vec<i64> = waiting.into_iter().filter(|n| !existing.contains(n)).collect();
    if !over.is_empty() {
        SWEEP.execute(args![over]);
    }
    if ours.is_empty() {
        return false;
    }
    let mut deltas = Deltas::new();
    for (run_no, signal) in TAKE.query(args![ours], |row| {
        (
            row.need::<i64>(1),
            Delta { satisfied: row.need(2), failed: row.need(3), lost: row.need(4), lost_status: row.get(5) },
        )
    }) {
        let delta = deltas.entry(run_no).or_default();
        delta.satisfied += signal.satisfied;
        delta.failed += signal.failed;
        delta.lost += signal.lost;
        delta.lost_status = delta.lost_status.take().or(signal.lost_status);
    }
    if deltas.is_empty() {
        return false;
    }
    let endings = apply(deltas, now);
    let news = endings.iter().map(|e| (e.task_no, e.outcome)).collect();
    store(&endings, now);
    propagate(news, now);
    true
}
