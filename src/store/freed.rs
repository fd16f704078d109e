//! A task that nothing blocks any more.

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Record;

/// A task that nothing blocks, and what it brings along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    /// The number of the task.
    pub(crate) task_no: TaskNo,
    /// Tries so far.
    pub(crate) tries: i32,
    /// How many of its dependencies have aborted.
    pub(crate) failures: i32,
    /// How many dependencies it has in all.
    pub(crate) dependencies: i32,
    /// Not owned before this time, whatever the task itself says.
    pub(crate) not_before: Option<Time>,
}

/// From four columns: task_no, tries, failures, dependencies.
impl Record for Freed {
    type Columns = (TaskNo, i32, i32, i32);

    fn of((task_no, tries, failures, dependencies): Self::Columns) -> Self {
        Freed { task_no, tries, failures, dependencies, not_before: None }
    }
}
