//! What keeps entries back, and where one goes that may not run now.

use std::collections::{HashMap, HashSet};

use crate::number::{Lane, Position, ReasonNo};
use crate::pg::clock::Time;
use crate::store::reason::{self, MergeKey, Reason};

/// Where an entry goes that may not run now.
pub(super) enum Way {
    Lane,
    Park(Reason),
    /// With the number of the reason, see [`aside`].
    Schedule(ReasonNo, Time),
}

impl Way {
    /// The same for an entry that has to stay where it is: the number of the reason, and when that ends, if it is a time.
    pub(super) fn aside(self) -> Option<(ReasonNo, Option<Time>)> {
        match self {
            Way::Park(reason) => Some((reason.aside(), None)),
            Way::Schedule(reason, due) => Some((reason, Some(due))),
            Way::Lane => None,
        }
    }
}

/// Where entries stand one behind the other: a priority of an action, in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stretch {
    /// The number that stands for the action.
    pub(super) action_no: i32,
    /// The priority that all these entries have.
    pub(super) priority: i32,
    /// The lane that they are in; [`Lane::NONE`]: none.
    pub(super) lane: Lane,
}

/// What a call has found out about what keeps entries back.
#[derive(Default)]
pub(super) struct Found {
    /// Groups that are paused, with their rows locked.
    pub(super) paused: HashSet<String>,
    /// Groups that are paused and whose locks are not to be had, and when to look again.
    pub(super) changing: HashMap<String, Time>,
    /// Workgroups that are held back, and until when; where a call may be changing that, when to look again.
    pub(super) held_back: HashMap<String, Time>,
    /// Keys that other tasks have, with their rows locked.
    pub(super) busy: HashSet<MergeKey>,
    /// Where such entries were met since the last look ahead, and the position of the first.
    pub(super) met: HashMap<Stretch, Position>,
}

impl Found {
    /// Adds what was found since.
    pub(super) fn add(&mut self, since: Found) {
        self.paused.extend(since.paused);
        self.changing.extend(since.changing);
        self.held_back.extend(since.held_back);
        self.busy.extend(since.busy);
        for (stretch, position) in since.met {
            self.has_met(stretch, position);
        }
    }

    /// Notes that an entry which is kept back was met here. The first position is kept.
    pub(super) fn has_met(&mut self, stretch: Stretch, position: Position) {
        let first = self.met.entry(stretch).or_insert(position);
        *first = position.min(*first);
    }

    /// What keeps an entry of a group and a workgroup back, if anything does besides limits and its merge key.
    pub(super) fn way(&self, group: Option<&String>, workgroup: Option<&String>) -> Option<Way> {
        if let Some(group) = group.filter(|g| self.paused.contains(*g)) {
            return Some(Way::Park(Reason::Group(group.clone())));
        }
        if let Some((group, due)) = group.and_then(|g| self.changing.get_key_value(g)) {
            return Some(Way::Schedule(reason::group(group), *due));
        }
        let (name, due) = workgroup.and_then(|w| self.held_back.get_key_value(w))?;
        Some(Way::Schedule(reason::workgroup(name), *due))
    }
}
