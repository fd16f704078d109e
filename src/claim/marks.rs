//! Low-water marks: where a claim begins.
//!
//! Entries of tasks in progress stay in the index of claiming, and so do dead ones until vacuum may remove them, which
//! a snapshot that a session holds for hours prevents. A claim that began at the beginning would pass them all, each
//! time. So a backend keeps, for some actions and priorities that it has been granted tasks of (or has taken over marks
//! of), the position before which there is nothing to be granted: not now, and never again. An abort leaves nothing wrong.
//!
//! **No entry is missed.** Up to the bound of a look (see [`decided`](crate::store::decided)) it sees each entry, as
//! grantable or not. One that it sees as granted or set aside was made so by a transaction that has committed, and such an
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
//! **Marks are found out anew** after a while ([`decided`](crate::store::decided) says why), bit by bit ([`recheck`]): a mark
//! stays where it is as long as nothing is found before it, and as a rule no call scans all the way for that. A backend that has no
//! marks of an action takes over what others have written down of theirs ([`shared`]).
//!
//! Where marks cannot move, a call still scans once only: its claim and what comes after it begin at the first entry
//! that its look has seen ([`ranges_of_look`]). What is committed meanwhile with an earlier position is for the call
//! that this commit wakes, and for the next call.
//!
//! Lanes have others, which go by the bounds of these: see [`lane_marks`](super::lane_marks).

mod kept;
mod mark;
mod ranges;
mod recheck;
mod shared;

use super::Grant;
use crate::ends::at_end;
use crate::memory::{self, Event};
use crate::number::{Lane, Position};
use crate::pg::{clock, session};
use crate::store::decided::Standing;
use kept::MARKS;

pub(crate) use kept::{Known, Seen};
pub(crate) use ranges::Ranges;
pub(super) use ranges::Stretch;
pub(crate) use shared::known;
pub(super) use shared::share;

/// Where entries of these actions were when this call looked: for what follows the look in the same call. What that
/// look did not include is walked from its mark.
pub(crate) fn ranges_of_look(action_nos: &[i32]) -> Ranges {
    MARKS.with(|marks| marks.ranges_of_look(action_nos))
}

/// Moves the marks up, as far as a look at them allows.
pub(crate) fn advance(known: &Known, seen: &Seen) {
    MARKS.with(|marks| {
        marks.decided_to = Position::BEGINNING;
        if marks.note(known, seen) != Standing::Holds {
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
        marks.recheck(known, seen);
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

/// What was concluded from the bound of this call's look has cost so many pages.
pub(super) fn has_cost(pages: u64) {
    MARKS.with(|marks| marks.decided.has_cost(clock::wall(), pages));
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
