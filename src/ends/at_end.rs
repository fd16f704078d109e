//! What this backend does at the end of each transaction with what the tables' files remember of it.
//!
//! It is called at every end from its first such transaction on, and what it remembers decides what there is to do: most of
//! the time nothing. Whichever way a transaction ends, nothing of it is remembered afterwards.

use super::{actors, count, counters, work};
use crate::pg::session;
use crate::pg::transaction::{self, Before, End, Listener};

pub(crate) use super::count::ends;

static LISTENER: Listener = Listener { before, ended, ..Listener::DEAF };

/// To be called by code that keeps something to be done at the end.
pub(crate) fn listen() {
    transaction::listen(&LISTENER);
}

fn before(end: Before) {
    if end == Before::Commit {
        work::tidy();
        actors::tell();
    }
    // At the very end: its signs, which others wait for, are held until the commit is over.
    counters::look(end);
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
        count::one_more();
    }
    actors::ended(end);
    match end {
        End::Commit | End::Prepare | End::Abort => {
            drop(work::take());
            counters::forget(end);
        }
        End::AbortSub(_) => counters::undone(),
        End::CommitSub(_) => {}
    }
}
