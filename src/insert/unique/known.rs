//! What is known of a key: which elements of the call have it, and which stored task.

use crate::input::{State, TaskSpec};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::store::unique_key::Key;

/// A stored task that a key points to.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    /// The number of the task.
    pub(super) task_no: TaskNo,
    /// The id of the task.
    pub(super) id: String,
    /// The end of its period; `None` if it has none.
    pub(super) until: Option<Time>,
    /// The states in which it holds the key.
    pub(super) states: i16,
    /// The state that it was in when it was looked up, or locked.
    pub(super) state: State,
    /// Its workgroup is held back: it is not ready, whatever its row says.
    pub(super) held_back: bool,
    /// It has a merge key, and may share the end of another task.
    pub(super) may_ride: bool,
}

impl Holder {
    /// Whether it holds the key now.
    pub(super) fn holds(&self, now: Time) -> bool {
        self.state.is_in(self.states) && self.until.is_none_or(|until| now < until)
    }

    /// Whether it may have to be locked before an insertion is decided upon that replaces what holds its key, or not.
    pub(super) fn is_open(&self, replacing: bool, now: Time) -> bool {
        self.holds(now) && (replacing || self.is_relied_upon())
    }

    /// Whether a task that is left out because of this one counts on its not having begun yet.
    fn is_relied_upon(&self) -> bool {
        self.state.is_pending() && !State::InProgress.is_in(self.states)
    }
}

/// What is known of one key of the call.
pub(super) struct Known {
    /// The elements of the call that have the key, in the order of the call.
    pub(super) elements: Vec<usize>,
    /// The task that the row points to, if there still is one.
    pub(super) holder: Option<Holder>,
    /// The one before it, which had begun when that was inserted.
    pub(super) behind: Option<Holder>,
    /// When the first of those that have replaced each other was inserted.
    pub(super) since: Time,
    /// The end of the period of the one before.
    pub(super) not_before: Option<Time>,
    /// Where the stored row points to; the call's own number if it has made the row.
    pub(super) points_to: TaskNo,
}

impl Known {
    /// The stored tasks with the key.
    pub(super) fn stored(&self) -> impl Iterator<Item = &Holder> {
        self.holder.iter().chain(&self.behind)
    }

    /// A key whose row points to this task, of which nothing else is known yet.
    pub(super) fn new(points_to: TaskNo, since: Time, not_before: Option<Time>) -> Self {
        Known { elements: Vec::new(), holder: None, behind: None, since, not_before, points_to }
    }
}

/// The key of a task, if it is unique.
pub(super) fn key_of(spec: &TaskSpec) -> Option<Key> {
    spec.unique.as_ref().map(|unique| (spec.action.clone(), unique.key.clone()))
}
