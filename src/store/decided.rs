//! Up to which position everything is decided: what the low-water marks rest on.
//!
//! Every position comes from one sequence, is taken by a transaction that has its id by then, and is the greatest so
//! far (exceptions are below). A look reads the last position that was taken, L, and after that the next transaction id that has
//! not been assigned, X. So a transaction that took a position up to L has an id before X. A look, this one or a later one,
//! whose snapshot has an xmin of X or beyond sees all these transactions as ended: what they inserted is in its
//! snapshot, or will never be. L is the *bound* then. Taking the snapshot's xmax for X, or an id that was assigned
//! after the position, would lose tasks.
//!
//! A sequence that has not been used yet says its first value as if that were taken; the reader of L has to subtract it. And L has
//! to be read behind the lock on the sequence's page ([`last_value`](crate::pg::sequence::last_value)): a query may
//! find it 32 ahead of what was taken.
//!
//! **On a standby** nothing of this is so: what is replayed of the sequence is up to 32 ahead, and the next id lags
//! behind. Bounds are not found there, so that none outlives the promotion.
//!
//! **Positions that are not what they were.** After TRUNCATE the rows are in another file, after RESTART the sequence
//! is, and a sequence that was set back stands before a position that was read. Then nothing is known any more. Two
//! things leave no trace: `setval` to an earlier position, if the sequence is beyond the latest look again by the next
//! one, and old rows copied in below the bound. Neither belongs into a live queue: sessions that have claimed pass over
//! such rows until they connect anew.

use pgrx::pg_sys::Oid;

use crate::memory::Shown;
use crate::number::Position;
use crate::pg::session;

/// What a look with one snapshot has read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The last position that was taken from the sequence.
    pub(crate) last_position: Position,
    /// The files of the rows and of the sequence.
    pub(crate) files: (Oid, Oid),
    /// All transactions before this one had ended when the snapshot was taken.
    pub(crate) xmin: u64,
}

/// What this backend knows of the positions.
#[derive(Debug)]
pub(crate) struct Decided {
    files: (Oid, Oid),
    /// Positions have come up to this.
    reached: Position,
    /// Up to here every position is decided, for a snapshot whose xmin is `bound_from` or beyond.
    bound: Position,
    bound_from: u64,
    /// A position that will be the bound, and from which xmin on.
    pending: Option<(Position, u64)>,
}

impl Default for Decided {
    fn default() -> Self {
        Decided {
            files: (Oid::INVALID, Oid::INVALID),
            reached: Position::BEGINNING,
            bound: Position::BEGINNING,
            bound_from: 0,
            pending: None,
        }
    }
}

impl Decided {
    /// What was concluded of so many ranges, for `taskq._session()`.
    pub(crate) fn shown(&self, entries: usize) -> Shown {
        let is_known = self.bound > Position::BEGINNING;
        Shown { entries, version: is_known.then_some(self.bound.0), ..Shown::default() }
    }

    /// Whether what was concluded before this look still holds. If not, positions are not what they were: the bound is
    /// forgotten, and the caller forgets what it has concluded, and concludes nothing from this look.
    pub(crate) fn still_holds(&mut self, look: &Look) -> bool {
        let holds = look.files == self.files && look.last_position >= self.reached;
        if !holds {
            *self = Decided { files: look.files, ..Decided::default() };
        }
        self.reached = look.last_position;
        holds
    }

    /// Takes note of a look, and tells up to which position all is decided in its snapshot, if that is known.
    ///
    /// Not for a transaction that had an id before the look: a grant or a deletion of its own may be undone by a
    /// savepoint, and comes back at the old position then.
    pub(crate) fn bound(&mut self, look: &Look, had_id: bool) -> Option<Position> {
        if had_id || session::in_recovery() {
            return None;
        }
        // After the position was read: see X above.
        self.bound_before(look, session::next_transaction_id())
    }

    /// The same for a transaction that has an id: up to which position no other transaction decides anything any more. What
    /// this transaction has done itself may be undone, so what it concludes from this is for itself, and for as long as it
    /// undoes nothing.
    pub(crate) fn bound_of_others(&mut self, look: &Look, xmin_of_others: u64) -> Option<Position> {
        if session::in_recovery() {
            return None;
        }
        // What is kept is for later looks, and as true for them: a snapshot whose xmin has come to the id that was not
        // assigned sees this transaction as ended, too.
        self.bound_before(&Look { xmin: xmin_of_others, ..*look }, session::next_transaction_id())
    }

    /// [`bound`](Self::bound), with the id that has not been assigned.
    pub(crate) fn bound_before(&mut self, look: &Look, next: u64) -> Option<Position> {
        // The latest if no transaction is under way, else the one that was noted before.
        let latest = Some((look.last_position, next));
        let reached = [latest, self.pending].into_iter().flatten().find(|b| look.xmin >= b.1);
        if let Some((position, from)) = reached {
            (self.bound, self.bound_from, self.pending) = (position, from, None);
        }
        if self.pending.is_none() && look.last_position > self.bound {
            self.pending = latest;
        }
        (self.bound > Position::BEGINNING && look.xmin >= self.bound_from).then_some(self.bound)
    }
}
