//! The tasks of a call, and what becomes of each.

use std::collections::HashMap;

use crate::input::TaskSpec;
use crate::number::TaskNo;

/// A task that this call inserts.
pub(crate) struct NewTask {
    /// The number that this call has taken for it, which is also its position if it is ready at once.
    pub(crate) task_no: TaskNo,
    /// The number that stands for its action.
    pub(crate) action_no: i32,
    /// Whether its action is set to `notify`.
    pub(crate) notify: bool,
    /// Whether its action puts every task that has a group into the lane of that.
    pub(super) gives_lanes: bool,
    /// Its id, given or made up.
    pub(crate) id: String,
    /// The call has made up the id: no other task has it.
    pub(super) id_is_new: bool,
    /// Its place in the call, from 0.
    pub(super) element: usize,
    /// What was said of it, with what its action and its unique key add. Its id has been moved from there.
    pub(crate) spec: TaskSpec,
}

/// What became of an element that was not simply inserted.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// It comes after the task that held its key.
    After { existing: String },
    /// It took the place of another task.
    Replaced { existing: String },
    /// It was left out, for the sake of this task.
    Skipped { existing: String },
}

/// Fates by the places of elements in the call.
pub(super) type Fates = HashMap<usize, Fate>;

/// What a call has come to.
pub(super) struct Inserted {
    /// The tasks inserted, in the order of the call.
    pub(super) tasks: Vec<NewTask>,
    /// What became of the elements that were not simply inserted.
    pub(super) fates: Fates,
    /// How many elements the call had.
    pub(super) elements: usize,
}

/// What became of one element of a call.
pub(crate) struct Report {
    /// The task that was inserted for it, or that stands for it.
    pub(crate) id: String,
    /// `inserted`, `replaced` or `skipped`.
    pub(crate) outcome: &'static str,
    /// The task that it has replaced, comes after or was left out for.
    pub(crate) existing: Option<String>,
}

impl Report {
    /// Whether the task itself was inserted.
    pub(crate) fn is_inserted(&self) -> bool {
        self.outcome != "skipped"
    }
}
