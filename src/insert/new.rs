//! The tasks of a call, and what becomes of each.

use std::collections::HashMap;

use crate::input::{Reference, TaskSpec};
use crate::number::TaskNo;
use crate::store::reason::MergeKey;

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

impl NewTask {
    /// Its dependencies, either way.
    pub(super) fn references(&self) -> impl Iterator<Item = &Reference> {
        self.spec.depends_on.iter().chain(&self.spec.to_signal_after)
    }

    /// Its merge key, if it has one.
    pub(super) fn merge_key(&self) -> Option<MergeKey> {
        MergeKey::of(&self.spec.action, self.spec.group.as_deref(), self.spec.merge_key.as_deref())
    }
}

/// What became of an element that was not simply inserted; with the number of another task.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It comes after this one, which held its key.
    After(TaskNo),
    /// It took the place of this one.
    Replaced(TaskNo),
    /// It was left out, for the sake of this one.
    Skipped(TaskNo),
}

/// What became of the elements that were not simply inserted.
#[derive(Default)]
pub(super) struct Fates {
    /// By the number that the call has taken for each.
    pub(super) of: HashMap<TaskNo, Fate>,
    /// The ids of the other tasks in them.
    pub(super) names: HashMap<TaskNo, String>,
}

impl Fates {
    /// The fate of an element, and the id of the other task in it. Returns what it was before.
    pub(super) fn set(&mut self, task_no: TaskNo, fate: Fate, other: &str) -> Option<Fate> {
        let (Fate::After(of) | Fate::Replaced(of) | Fate::Skipped(of)) = fate;
        self.names.entry(of).or_insert_with(|| other.to_owned());
        self.of.insert(task_no, fate)
    }
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
