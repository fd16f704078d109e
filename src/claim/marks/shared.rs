//! Marks that backends share, in the table `low_mark`.
//!
//! A backend that has no marks of an action would scan all that is dead: that may take seconds where a session holds a snapshot and
//! millions of tasks are done. So it takes over what others have written down. That holds for it as for them: what is written is
//! the mark that is good for every backend, never one of a transaction's own, and it went up to what was decided by then.
//! Whatever this backend's transaction has taken itself, it had an id before that: it was no further decided then.

use std::collections::BTreeMap;
use std::time::Duration;

use super::kept::{Known, MARKS, MOST_ACTIONS, Marks};
use crate::number::Position;
use crate::pg::clock::{Wall, wall};
use crate::pg::session;
use crate::pg::table::look;
use crate::store::low_mark::{self, LowMark};
use crate::store::numbers;

/// How many positions a mark moves until it is worth writing down: so many entries a new backend can well walk over.
const FAR: usize = 4_096;

/// How soon a backend without marks of an action asks again whether others have some.
const AGAIN: Duration = Duration::from_secs(1);

/// The marks of these actions, to be looked after.
pub(crate) fn known(action_nos: &[i32]) -> Known {
    take_over(action_nos);
    MARKS.with(|marks| marks.known(action_nos))
}

/// Takes over what others know of actions that this backend has no marks of.
fn take_over(action_nos: &[i32]) {
    let unknown: Vec<i32> = MARKS.with(|marks| marks.unknown(action_nos));
    if unknown.is_empty() || session::in_recovery() {
        return;
    }
    let (found, at) = look(|look| {
        // The last position is read after the snapshot was taken, as for the marks.
        let at = numbers::look(look);
        (low_mark::of(look, &at, &unknown), at)
    });
    MARKS.with(|marks| {
        if marks.decided.may_take_over(&at) {
            found.iter().for_each(|mark| marks.take_over(mark));
        }
    });
}

/// Writes down where claims of these actions begin, if that is far from what is written there. To be called by a call that has
/// granted something: it is to commit.
pub(in crate::claim) fn share(action_nos: &[i32]) {
    let moved = MARKS.with(|marks| marks.moved_far(action_nos));
    if moved.is_empty() || !session::is_read_committed() {
        return;
    }
    let (written, at) = look(|look| {
        let at = numbers::look(look);
        let mut of: Vec<i32> = moved.iter().map(|mark| mark.action_no).collect();
        of.dedup();
        (low_mark::of(look, &at, &of), at)
    });
    if !MARKS.with(|marks| marks.decided.may_take_over(&at)) {
        return;
    }
    for mark in moved {
        let same = |other: &&LowMark| (other.action_no, other.priority) == (mark.action_no, mark.priority);
        let others = written.iter().filter(same).map(|other| other.position).max().unwrap_or_default();
        let worth_it = others.plus(FAR) <= mark.position;
        if worth_it {
            low_mark::write(&mark, &at);
        }
        MARKS.with(|marks| marks.has_shared(&mark, if worth_it { mark.position } else { others }));
    }
}

impl Marks {
    /// Those of the actions of which it has no marks and has not asked others just now; it does now.
    fn unknown(&mut self, action_nos: &[i32]) -> Vec<i32> {
        let without = |n: &&i32| self.marks.get(*n).is_none_or(BTreeMap::is_empty);
        let mut unknown: Vec<i32> = action_nos.iter().take(MOST_ACTIONS).filter(without).copied().collect();
        if unknown.is_empty() {
            return unknown;
        }
        let now = wall();
        unknown.retain(|n| !self.asked.get(n).is_some_and(|at| *at <= now && now < *at + AGAIN));
        if self.asked.len() + unknown.len() > 4 * MOST_ACTIONS {
            self.asked.clear();
        }
        self.asked.extend(unknown.iter().map(|n| (*n, now)));
        unknown
    }

    fn take_over(&mut self, other: &LowMark) {
        self.learn(other.action_no, other.priority);
        let mark = self.marks.get_mut(&other.action_no).and_then(|marks| marks.get_mut(&other.priority));
        if let Some(mark) = mark.filter(|mark| mark.start < other.position) {
            (mark.start, mark.walked_at, mark.shared) = (other.position, other.walked_at, other.position);
        }
    }

    /// The marks of these actions that have moved far since they were written down.
    fn moved_far(&self, action_nos: &[i32]) -> Vec<LowMark> {
        let mut moved = Vec::new();
        for action_no in action_nos {
            for (priority, mark) in self.marks.get(action_no).into_iter().flatten() {
                if mark.shared.plus(FAR) <= mark.start && mark.walked_at > Wall::BEGINNING {
                    let (action_no, priority) = (*action_no, *priority);
                    let (position, walked_at) = (mark.start, mark.walked_at);
                    moved.push(LowMark { action_no, priority, position, walked_at });
                }
            }
        }
        moved
    }

    fn has_shared(&mut self, mark: &LowMark, shared: Position) {
        let own = self.marks.get_mut(&mark.action_no).and_then(|marks| marks.get_mut(&mark.priority));
        if let Some(own) = own {
            own.shared = shared;
        }
    }
}
