//! Folding countdown rows into the counters they are for.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use super::countdown::{Delta, Deltas};
use super::propagate_deltas;
use crate::clock;
use crate::ends::touched;
use crate::error::Result;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::store::live::{Live, Place};
use crate::store::{contradiction, countdown};

/// The first $2 tasks with countdown rows that have higher numbers than $1: from one to the next along the index, however
/// many rows each has.
static NEXT_COUNTERS: Statement<(TaskNo, i32), TaskNo> = Statement::new(
    c"WITH RECURSIVE waiting AS (
        (SELECT s.run_no FROM taskq.countdown s WHERE s.run_no > $1 ORDER BY s.run_no LIMIT 1)
        UNION ALL
        SELECT (SELECT s.run_no FROM taskq.countdown s WHERE s.run_no > w.run_no ORDER BY s.run_no LIMIT 1)
          FROM waiting AS w WHERE w.run_no IS NOT NULL)
      SELECT w.run_no FROM waiting AS w WHERE w.run_no IS NOT NULL LIMIT $2",
);
static OF: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT u.task_no FROM pg_catalog.unnest($1) AS u(task_no)
       WHERE EXISTS (SELECT FROM taskq.countdown s WHERE s.run_no = u.task_no OFFSET 0)",
);
static LOCK_COUNTERS: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT b.task_no FROM taskq.blocked b WHERE b.task_no = ANY ($1) ORDER BY b.task_no FOR UPDATE SKIP LOCKED");

thread_local! {
    /// Up to which task [`some`] has come. Those whose counters are locked for long must not keep it from the others.
    static AT: Cell<TaskNo> = const { Cell::new(TaskNo::NONE) };
}

/// How many tasks a call looks at, in steps, for one whose counter is free.
const MOST_LOOKED_AT: usize = 1000;

/// Folds the countdown rows of up to about `limit` tasks; returns whether it changed anything. The next call in this
/// backend goes on behind them.
pub(crate) fn some(limit: i32, now: Time) -> bool {
    let mut looked_at = 0;
    loop {
        let from = AT.get();
        let waiting = go_on(limit);
        looked_at += waiting.len();
        if fold_what_can_be(waiting, now) {
            return true;
        }
        // Once round, or enough.
        if AT.get() == TaskNo::NONE && from == TaskNo::NONE || looked_at >= MOST_LOOKED_AT {
            return false;
        }
    }
}

/// The next of them, from where this backend has come to; after the last comes the first.
fn go_on(limit: i32) -> Vec<TaskNo> {
    let waiting = next(AT.get(), limit);
    let last = waiting.last().copied().filter(|_| waiting.len() >= limit as usize);
    AT.set(last.unwrap_or(TaskNo::NONE));
    waiting
}

fn next(from: TaskNo, limit: i32) -> Vec<TaskNo> {
    NEXT_COUNTERS.query((from, limit))
}

/// Folds the countdown rows of these tasks; returns whether it changed anything.
pub(crate) fn of(task_nos: &[TaskNo], now: Time) -> bool {
    let waiting: Vec<TaskNo> = OF.query(task_nos);
    fold(waiting, now)
}

/// Locks tasks that a call is about to end or to change, with the ends counted that were left for them while others, or an
/// earlier call of this transaction, had their counters: what has ended for a task before the call has it is not undone by what
/// the call does. `rows` are those that `lock` has locked; it is called again where counting has changed anything.
///
/// No transaction can leave another row for a counter that is ours without leaving the count to our last
/// look.
pub(crate) fn locked<T>(
    mut lock: impl FnMut() -> Result<T>,
    rows: impl Fn(&T) -> &HashMap<TaskNo, Live>,
) -> Result<T> {
    loop {
        let locked = lock()?;
        let waiting = rows(&locked).values().filter(|row| matches!(row.place, Place::Blocked(_)));
        let waiting: Vec<TaskNo> = waiting.map(|row| row.task_no).collect();
        if waiting.is_empty() || !countdown::may_be_there() || !of(&waiting, clock::now()) {
            return Ok(locked);
        }
    }
}

/// Removes the countdown rows of tasks that do not wait and are about to begin anew: what is due to them is worked out
/// from their dependencies, so that a row of their earlier life would count twice. The caller has locked all that
/// they wait for, and so waited for the transactions that were leaving one.
pub(crate) fn forget(task_nos: &[TaskNo]) {
    countdown::FORGET.execute(task_nos);
}

fn fold(waiting: Vec<TaskNo>, now: Time) -> bool {
    if waiting.is_empty() {
        return false;
    }
    let counted = try_lock_and_count(&waiting, now);
    sweep(waiting, &[counted])
}

/// The same for any call: a task that cannot be freed, since its rows contradict others, is left alone.
fn fold_what_can_be(waiting: Vec<TaskNo>, now: Time) -> bool {
    if waiting.is_empty() {
        return false;
    }
    let counted = contradiction::leaving(&waiting, |n| *n, |part| try_lock_and_count(part, now)).parts;
    sweep(waiting, &counted)
}

/// Removes the rows of tasks that do not wait any more, among those that could not be locked; whether this, or the counting before,
/// has changed anything.
fn sweep(waiting: Vec<TaskNo>, counted: &[Counted]) -> bool {
    let locked: HashSet<TaskNo> = counted.iter().flat_map(|part| &part.locked).copied().collect();
    let others: Vec<TaskNo> = waiting.into_iter().filter(|n| !locked.contains(n)).collect();
    let swept = !others.is_empty() && countdown::SWEEP.execute(others) > 0;
    swept || counted.iter().any(|part| part.changed)
}

/// What came of an attempt to count.
pub(super) struct Counted {
    /// The tasks whose counters were free, and are locked now, or were ours already.
    pub(super) locked: Vec<TaskNo>,
    /// Rows were counted.
    pub(super) changed: bool,
}

/// Locks those of the counters that no other transaction has, and counts the rows that are there for them. Not those of tasks
/// that this backend has met with and cannot free: it would fail with them again, also in its last look before it
/// commits.
pub(super) fn try_lock_and_count(task_nos: &[TaskNo], now: Time) -> Counted {
    // The counter first, then its rows with a newer snapshot: no other transaction can take them
    // meanwhile, and those committed before the lock was had are seen.
    touched::locking();
    let task_nos: Vec<TaskNo> = task_nos.iter().copied().filter(|n| !contradiction::is_left(*n)).collect();
    let locked: Vec<TaskNo> = LOCK_COUNTERS.query(task_nos);
    // A transaction that has an end to count meanwhile finds the counter locked, and leaves the last look to this one.
    touched::locked(&locked);
    if locked.is_empty() {
        return Counted { locked, changed: false };
    }
    let mut deltas = Deltas::new();
    for (waiting, signal) in countdown::TAKE.map(
        locked.as_slice(),
        |(run_no, wait_no, satisfied, failed, lost, lost_status, skipped)| {
            ((run_no, wait_no), Delta { satisfied, failed, lost, skipped, lost_status })
        },
    ) {
        deltas.entry(waiting).or_default().add(signal);
    }
    if deltas.is_empty() {
        return Counted { locked, changed: false };
    }
    // What was too late for a suspended task has left no row.
    propagate_deltas(deltas, None, now);
    Counted { locked, changed: true }
}
