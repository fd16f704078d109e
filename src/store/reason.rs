//! Why an entry may not run: what it is parked under, and the number by which `run` has it of what is parked in place.

use crate::number::{ReasonNo, TaskNo};
use crate::pg::lock::Key;
use crate::pg::statement::Record;

/// What tasks share that are merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MergeKey {
    /// The name of the action.
    pub(crate) action: String,
    /// Empty: none.
    pub(crate) group: String,
    /// The key itself, as the inserter gives it.
    pub(crate) key: String,
}

impl MergeKey {
    /// That of a task, if it has one.
    pub(crate) fn of(action: &str, group: Option<&str>, key: Option<&str>) -> Option<Self> {
        let group = group.unwrap_or_default();
        Some(MergeKey { action: action.to_owned(), group: group.to_owned(), key: key?.to_owned() })
    }

    /// For `unnest(…) AS u(action, group_id, key)`.
    pub(crate) fn columns<'a>(
        keys: impl Iterator<Item = &'a MergeKey>,
    ) -> (Vec<&'a str>, Vec<&'a str>, Vec<&'a str>) {
        let (mut actions, mut groups, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            actions.push(key.action.as_str());
            groups.push(key.group.as_str());
            names.push(key.key.as_str());
        }
        (actions, groups, names)
    }
}

/// From three columns: action, group, key.
impl Record for MergeKey {
    type Columns = (String, String, String);

    fn of((action, group, key): Self::Columns) -> Self {
        MergeKey { action, group, key }
    }
}

/// Why a task is parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its group is paused.
    Group(String),
    /// A task with its key runs.
    Key(MergeKey),
    /// It shares the end of this task.
    Rides(TaskNo),
}

impl Reason {
    /// Its number in `run`.
    pub(crate) fn aside(&self) -> ReasonNo {
        match self {
            Reason::Group(name) => group(name),
            Reason::Key(merge_key) => key(merge_key),
            Reason::Rides(leader) => rides(*leader),
        }
    }
}

fn number(name: &[&str]) -> ReasonNo {
    ReasonNo((Key::new(name).number() as i64).max(1))
}

/// The number of a reason: a group that is paused.
pub(crate) fn group(group: &str) -> ReasonNo {
    number(&["group", group])
}

/// A workgroup that is held back.
pub(crate) fn workgroup(name: &str) -> ReasonNo {
    number(&["workgroup", name])
}

/// A merge key that another task has.
pub(crate) fn key(key: &MergeKey) -> ReasonNo {
    number(&["key", &key.action, &key.group, &key.key])
}

/// The back-off of a try that a deadline has ended: a number that no name has.
pub(crate) const BACKOFF: ReasonNo = ReasonNo(1 << 60);

/// A task whose end it shares.
pub(crate) fn rides(leader: TaskNo) -> ReasonNo {
    ReasonNo(-leader.0)
}
