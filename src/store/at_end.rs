//! What this backend does at the end of each transaction with what the tables' files remember of it.
//!
//! It is called at every end from its first such transaction on, and what it remembers decides what there is to do: most of
//! the time nothing. Whichever way a transaction ends, nothing is remembered afterwards.

use std::cell::Cell;

use super::{before_commit, touched};
use crate::pg::session;
use crate::pg::transaction::{self, Before, End, Listener};

thread_local! {
    /// How many ends there were by which something may have been undone, or after which it is for others as well.
    static ENDS: Cell<u64> = const { Cell::new(0) };
}

/// A number that stays as it is for as long as everything that the transaction has done is its own, and not undone: until it
/// ends, or a savepoint of it is rolled back behind which something was changed.
/// Counted from the first [`listen`] on.
pub(crate) fn ends() -> u64 {
    ENDS.get()
}

static LISTENER: Listener = Listener { before, ended, ..Listener::DEAF };

/// To be called by code that keeps something to be done at the end.
pub(crate) fn listen() {
    transaction::listen(&LISTENER);
}

fn before(end: Before) {
    if end == Before::Commit {
        before_commit::tidy();
    }
    // At the very end: its signs, which others wait for, are held until the commit is over.
    touched::look(end);
}

fn ended(end: End) {
    let undone_or_over = match end {
        End::Commit | End::Prepare | End::Abort => true,
        // Whatever has changed something has an id, and gives one to all that it is within. (Looks of the queue's own are
        // rolled back for the sake of their locks, many a time in each call that waits.)
        End::AbortSub(_) => session::has_part_an_id(),
        End::CommitSub(_) => false,
    };
    if undone_or_over {
        ENDS.set(ENDS.get() + 1);
    }
    match end {
        End::Commit | End::Prepare | End::Abort => {
            drop(before_commit::take());
            touched::forget(end);
        }
        End::AbortSub(_) => touched::undone(),
        End::CommitSub(_) => {}
    }
}
