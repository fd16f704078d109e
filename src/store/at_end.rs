//! What this backend does at the end of each transaction with what the tables' files remember of it.
//!
//! It hears of every end from its first such transaction on, and what it remembers decides what there is to do: most of the
//! time nothing. Whichever way a transaction ends, nothing is remembered afterwards.

use super::{before_commit, touched};
use crate::pg::transaction::{self, Before, End, Listener};

static LISTENER: Listener = Listener { before, ended, ..Listener::DEAF };

/// To be called by whoever has something remembered for the end.
pub(super) fn listen() {
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
    match end {
        End::Commit | End::Prepare | End::Abort => {
            drop(before_commit::take());
            touched::forget(end);
        }
        End::AbortSub(_) | End::CommitSub(_) => {}
    }
}
