//! Low-water marks: where a claim begins.
//!
//! Entries of tasks in progress stay in the index of claiming, and so do dead ones until vacuum may remove them, which
//! a snapshot that a session holds for hours prevents. A claim that began at the beginning would pass them all, each
//! time. So a backend keeps, for some actions and priorities, the position before which there is nothing to be granted: not
//! now, and never again. An abort leaves nothing wrong.
//!
//! **No entry is missed.** Up to the bound of a look (see [`decided`](crate::store::decided)) it sees each entry, as
//! grantable or not. One that it sees as granted or parked was made so by a transaction that has committed, and such an
//! entry comes back at a new position, if at all. So nothing can be had before the first that it sees as grantable,
//! locked or not, nor, if it sees none, up to the bound: the mark moves up to there.
//!
//! A transaction that holds an id for long, anywhere in the cluster, keeps the bound where it is, and claims pass what
//! comes behind it as if there were no marks. A transaction that only reads does not.
//!
//! **A transaction that has an id** has granted something itself, or may have. It sees that as granted, but a rollback to a
//! savepoint, or an abort, brings it back to its old position, for this session and all others. So what it concludes from what
//! others have decided is good for itself alone, until the next end of a (sub)transaction by which something may be undone.
//! Without that, a loop of calls in one transaction would pass all that it has done before, in each.
//!
//! **Which priorities have marks.** Those that this backend is granted tasks of; and those of which the index has entries, dead ones
//! too, once a claim has walked far ([`has_walked`]). Without the second a call that is granted nothing would walk over the same
//! dead entries each time: one that sleeps keeps them there itself, by its snapshot.
//!
//! Where marks cannot move, a call still scans once only: its claim and what comes after it begin at the first entry
//! that its look has seen ([`ranges_of_look`]). What is committed meanwhile with an earlier position is for the call
//! that this commit wakes, and for the next call.
//!
//! Lanes have others, which go by the bounds of these: see [`lane_marks`](super::lane_marks).

mod kept;
mod mark;
mod ranges;

use super::Grant;
use crate::ends::at_end;
use crate::memory::cost;
use crate::memory::{self, Event};
use crate::number::{Lane, Position};
use crate::pg::session;
use crate::pg::table::look;
use crate::store::run;
use crate::wake::lately;
use kept::{MARKS, MOST_ACTIONS, MOST_PRIORITIES};

pub(crate) use kept::{Known, Seen};
pub(crate) use ranges::Ranges;
pub(super) use ranges::Stretch;

/// The marks of these actions, to be looked after.
pub(crate) fn known(action_nos: &[i32]) -> Known {
    MARKS.with(|marks| marks.known(action_nos))
}

/// Where entries of these actions were when this call looked: for what follows the look in the same call. What that
/// look did not include is walked from its mark.
pub(crate) fn ranges_of_look(action_nos: &[i32]) -> Ranges {
    MARKS.with(|marks| marks.ranges_of_look(action_nos))
}

/// Moves the marks up to where a look at them allows.
pub(crate) fn advance(known: &Known, seen: &Seen) {
    MARKS.with(|marks| {
        marks.decided_to = Position::BEGINNING;
        if !marks.note(known, seen) {
            memory::happened(Event::PositionsInDoubt);
            // Nothing is concluded from this look, but from the next one perhaps what this one has read.
            marks.decided.bound(&seen.look, session::has_transaction_id());
        } else if session::has_transaction_id() {
            at_end::listen();
            if let Some(bound) = marks.decided.bound_of_others(&seen.look, seen.xmin_of_others) {
                marks.advance_own(known, seen, bound, at_end::ends());
            }
        } else if let Some(bound) = marks.decided.bound(&seen.look, false) {
            marks.decided_to = bound;
            marks.advance(known, seen, bound);
        }
    });
}

/// This call claims without a look. What an earlier one has seen may be otherwise by now: what a savepoint had taken is back
/// where it was. So it goes by the marks alone.
pub(crate) fn without_look() {
    MARKS.with(|marks| {
        marks.looks += 1;
        marks.decided_to = Position::BEGINNING;
    });
}

/// Up to where every position was decided when this call looked: what has a place up to there and is not seen by what
/// follows the look will never be.
pub(super) fn decided() -> Position {
    MARKS.with(|marks| marks.decided_to)
}

/// How many pages it takes at most to find out that a stretch has nothing.
const PAGES_OF_A_STRETCH: usize = 8;

/// A claim of these actions has read so many pages, where `few` would have been cheap, besides those of its stretches. If it has
/// walked over much that is not to be had, the next call looks, so that marks move, and the priorities that there are have marks.
pub(super) fn has_walked(action_nos: &[i32], ranges: &Ranges, pages: u64, few: usize) {
    if cost::lasts(pages, few + PAGES_OF_A_STRETCH * ranges.starts.len()).is_none() {
        return;
    }
    lately::look_soon();
    let action_nos = &action_nos[..action_nos.len().min(MOST_ACTIONS)];
    let found = look(|look| run::priorities(look, action_nos, MOST_PRIORITIES));
    MARKS.with(|marks| found.iter().for_each(|(action_no, priority)| marks.find(*action_no, *priority)));
}

/// Remembers the priorities of tasks that were granted from no lane.
pub(super) fn learn(grants: &[Grant]) {
    MARKS.with(|marks| {
        for grant in grants.iter().filter(|g| g.lane == Lane::NONE) {
            marks.learn(grant.action_no, grant.priority);
        }
    });
}

#[cfg(test)]
mod tests;
