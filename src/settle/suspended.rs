//! Suspended tasks whose time is over go on without what is open of that for which they wait.

use std::collections::HashMap;

use super::countdown::{release_or_complete, without_open};
use super::{Ending, fold, settle};
use crate::ends::touched;
use crate::locks::{self, LockStrength};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::state::Cause;
use crate::store::live::{self, Live};
use crate::store::{blocked, contradiction};

static OVERDUE: Statement<(i32, Time), TaskNo> = Statement::new(
    c"SELECT b.task_no FROM taskq.blocked b
       WHERE b.since IS NOT NULL AND b.until <= $2 ORDER BY b.until LIMIT $1 FOR UPDATE SKIP LOCKED",
);

/// Frees up to so many suspended tasks that have waited long enough; how many. What other transactions have locked is left for later.
pub(crate) fn free_overdue(limit: i32, now: Time) -> usize {
    touched::locking();
    let overdue = OVERDUE.query((limit, now));
    touched::locked(&overdue);
    if overdue.is_empty() {
        return 0;
    }
    let done = contradiction::leaving(&overdue, |n| *n, |part| free(part, now));
    if !done.left.is_empty() {
        blocked::PUT_OFF.execute((done.left, now + contradiction::LEAVE));
    }
    done.parts.into_iter().sum()
}

/// Frees tasks whose counters are locked by this transaction, or aborts them if they have lost a dependency. Ends that were left for
/// them count first: a task is not to go on without what has settled. An end that comes from here on finds no counter with the number
/// of this wait.
fn free(task_nos: &[TaskNo], now: Time) -> usize {
    fold::of(task_nos, now);
    let rows: HashMap<TaskNo, Live> = locks::lock(task_nos, LockStrength::Update);
    let waits = |row: &Live| row.counter().is_some_and(|counter| counter.since.is_some());
    let mut rows: Vec<Live> = rows.into_values().filter(waits).collect();
    rows.sort_unstable_by_key(|row| row.task_no);
    let lost = without_open(rows.iter_mut());
    live::remove(&rows);
    let (lost_rows, rows): (Vec<Live>, Vec<Live>) =
        rows.into_iter().partition(|row| lost.contains_key(&row.task_no));
    let aborts = |row: &Live| {
        let delta = &lost[&row.task_no];
        Ending::abort(row, Cause::of_lost(delta.only_skipped()), delta.lost_status.clone())
    };
    let mut endings: Vec<Ending> = lost_rows.iter().map(aborts).collect();
    endings.extend(release_or_complete(rows, now));
    settle(endings, now);
    task_nos.len()
}
