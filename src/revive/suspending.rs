//! What suspensions of tasks have added to their dependencies.

use std::collections::HashMap;

use crate::locks;
use crate::number::TaskNo;
use crate::pg::statement::Statement;
use crate::store::dependency;

static SUSPENDING: Statement<&[TaskNo], (TaskNo, TaskNo)> = Statement::new(
    c"SELECT d.after_no, d.run_no FROM taskq.dependency d WHERE d.run_no = ANY ($1) AND d.suspending",
);

/// Removes the dependencies that suspensions of these tasks have added; how many each loses. The caller has the tasks and their
/// neighbours: no end is on its way along one of these dependencies, and none is added.
pub(crate) fn drop_suspending(task_nos: &[TaskNo]) -> HashMap<TaskNo, i32> {
    drop(task_nos, &dependency::DROP_SUSPENDING)
}

/// Removes what suspensions have added and these tasks have not got when they are retried: what is open, what was lost, and what is
/// brought back with them. Each begins anew, and is suspended again if it wants. What it has got it keeps. How many each loses.
pub(super) fn drop_unfinished(task_nos: &[TaskNo]) -> HashMap<TaskNo, i32> {
    drop(task_nos, &dependency::DROP_UNFINISHED)
}

fn drop(
    task_nos: &[TaskNo],
    which: &'static Statement<&'static [TaskNo], (TaskNo, TaskNo)>,
) -> HashMap<TaskNo, i32> {
    let mut dropped: HashMap<TaskNo, i32> = HashMap::new();
    let edges = SUSPENDING.query(task_nos);
    if !edges.is_empty() {
        // Retention, or a call that deletes the other task, may be removing one of them.
        locks::lock_edges(&edges);
        for (_, run) in which.query(task_nos) {
            *dropped.entry(run).or_default() += 1;
        }
    }
    dropped
}
