//! What suspensions of tasks have added to their dependencies.

use std::collections::HashMap;

use crate::locks;
use crate::number::TaskNo;
use crate::pg::statement::Statement;
use crate::state::Condition;
use crate::store::dependency::{self, Counts};

static WITH_SUSPENDING: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT d.run_no FROM taskq.dependency d WHERE d.run_no = ANY ($1) AND d.suspending");

/// Removes the dependencies that suspensions of these tasks have added; how many each loses. The caller has the tasks and their
/// neighbours: no end is on its way along one of these dependencies, and none is added.
pub(crate) fn drop_suspending(task_nos: &[TaskNo]) -> HashMap<TaskNo, i32> {
    let mut dropped: HashMap<TaskNo, i32> = HashMap::new();
    for Removed { run, .. } in remove(task_nos) {
        *dropped.entry(run).or_default() += 1;
    }
    dropped
}

/// A dependency that is gone.
pub(super) struct Removed {
    /// The task that was waited for.
    pub(super) after: TaskNo,
    /// The one that waited.
    pub(super) run: TaskNo,
    /// What it was to that.
    pub(super) counts: Counts,
    /// On which condition.
    pub(super) condition: Condition,
}

/// The same; what is gone.
pub(super) fn remove(task_nos: &[TaskNo]) -> Vec<Removed> {
    let suspended = with_suspending(task_nos);
    if suspended.is_empty() {
        return Vec::new();
    }
    // Retention, or a call that deletes the other task, may be removing one of them.
    locks::lock_edges_of(&suspended);
    dependency::DROP_SUSPENDING.map(suspended, |(after, run, counts, condition)| {
        let (counts, condition) = (Counts::from_stored(counts), Condition::from_stored(condition));
        Removed { after, run, counts, condition }
    })
}

/// Removes what suspensions have added and these tasks have not got when they are retried: what is open, what was lost, and what is
/// brought back with them. Each begins anew, and is suspended again if it wants. What it has got it keeps. How many each loses.
pub(super) fn drop_unfinished(task_nos: &[TaskNo]) -> HashMap<TaskNo, i32> {
    let mut dropped: HashMap<TaskNo, i32> = HashMap::new();
    let suspended = with_suspending(task_nos);
    if !suspended.is_empty() {
        locks::lock_edges_of(&suspended);
        for (_, run) in dependency::DROP_UNFINISHED.query(task_nos) {
            *dropped.entry(run).or_default() += 1;
        }
    }
    dropped
}

/// Those of the tasks to whose dependencies a suspension has added some.
fn with_suspending(task_nos: &[TaskNo]) -> Vec<TaskNo> {
    let mut suspended = WITH_SUSPENDING.query(task_nos);
    suspended.sort_unstable();
    suspended.dedup();
    suspended
}
