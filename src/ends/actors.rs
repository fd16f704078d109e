//! The actors that lose tasks by this transaction: each is told by a notification, which goes with the commit.
//!
//! It is queued right before the commit, and not where the task is taken: a transaction that has queued one cannot be prepared.
//! One that is prepared sends none.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::pg::transaction::{End, Levels};
use crate::pg::{digest, notify};

thread_local! {
    /// Those that have lost tasks so far.
    static LOST: RefCell<Levels<String>> = const { RefCell::new(Levels::new()) };
}

/// The channel of an actor. A name has at most 63 bytes, that of an actor more: so a digest stands for it.
pub(crate) fn channel(actor_id: &str) -> String {
    format!("taskq_lost_{}", &digest::sha256(actor_id)[..32])
}

/// Notes what the (sub)transaction at this level has taken tasks from.
pub(super) fn note(level: i32, actor_ids: BTreeSet<&str>) {
    LOST.with_borrow_mut(|lost| actor_ids.into_iter().for_each(|one| lost.add(level, one.to_owned())));
}

/// The transaction is about to commit. Postgres sends what is queued now with this commit, and once where it is the same.
pub(super) fn tell() {
    let lost: BTreeSet<String> = LOST.with_borrow_mut(|lost| lost.take().collect());
    lost.iter().for_each(|actor_id| notify::notify(&channel(actor_id)));
}

/// A transaction or a part of it has ended.
pub(super) fn ended(end: End) {
    LOST.with_borrow_mut(|lost| match end {
        End::Commit | End::Abort | End::Prepare => lost.take().for_each(drop),
        End::AbortSub(level) => lost.undone(level).for_each(drop),
        End::CommitSub(level) => lost.released(level),
    });
}
