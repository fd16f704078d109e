//! One mark: the position before which a claim of an action and priority finds nothing.

use std::collections::{BTreeMap, HashMap};

use crate::ends::at_end;
use crate::number::Position;

/// Marks by action and priority.
pub(super) type ByAction = HashMap<i32, BTreeMap<i32, Mark>>;

/// The mark of an action and priority.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    /// Nothing is to be had before this position.
    pub(super) start: Position,
    /// How far this transaction alone may go on; `None`: no further than `start`.
    pub(super) own: Option<Own>,
    /// Nothing was to be had before this position when the look of this number was taken.
    pub(super) seen: (Position, u64),
    /// When the last grant of this priority was, in grants.
    pub(super) last_grant: u64,
}

/// Nothing is to be had by this transaction before this position, as long as it has undone nothing.
#[derive(Clone, Copy)]
pub(super) struct Own {
    /// The position, for this transaction.
    pub(super) start: Position,
    /// What [`at_end::ends`] was then.
    pub(super) ends: u64,
}

impl Default for Mark {
    fn default() -> Self {
        Mark { start: Position::BEGINNING, own: None, seen: (Position::BEGINNING, 0), last_grant: 0 }
    }
}

impl Mark {
    /// Nothing is to be had now before this position.
    pub(super) fn begins(&self) -> Position {
        let own = self.own.filter(|own| own.ends == at_end::ends());
        own.map_or(self.start, |own| self.start.max(own.start))
    }

    /// Nothing is known of it any more but when tasks were granted.
    pub(super) fn forget(&mut self) {
        *self = Mark { last_grant: self.last_grant, ..Mark::default() };
    }
}
