//! Merge keys.

use crate::pg::statement::{Arg, Row};

/// What tasks share that are merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MergeKey {
    pub(crate) action: String,
    /// Empty: none.
    pub(crate) group: String,
    pub(crate) key: String,
}

impl MergeKey {
    /// That of a task, if it has one.
    pub(crate) fn of(action: &str, group: Option<&str>, key: Option<&str>) -> Option<Self> {
        let group = group.unwrap_or_default();
        Some(MergeKey { action: action.to_owned(), group: group.to_owned(), key: key?.to_owned() })
    }

    /// From three columns of a row: action, group, key.
    pub(crate) fn read(row: Row, first: i32) -> Self {
        MergeKey { action: row.need(first), group: row.need(first + 1), key: row.need(first + 2) }
    }

    /// For `unnest(…) AS u(action, group_id, key)`.
    pub(crate) fn columns<'a>(keys: impl Iterator<Item = &'a MergeKey>) -> [Arg; 3] {
        let (mut actions, mut groups, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            actions.push(key.action.as_str());
            groups.push(key.group.as_str());
            names.push(key.key.as_str());
        }
        [Arg::new(actions), Arg::new(groups), Arg::new(names)]
    }
}
