//! What there is to do right before this transaction commits.

use std::cell::RefCell;

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::last_call;

/// What is to be done. Hints: what a savepoint has undone is found to need nothing.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Deadlines and keepers of leases that are to be handed on.
    pub(crate) leases: Vec<(Time, TaskNo)>,
}

thread_local! {
    /// What the transaction under way has noted.
    pub(super) static WORK: RefCell<Work> = RefCell::default();
}

/// The transaction is about to commit.
pub(super) fn tidy() {
    if WORK.with_borrow(|work| !work.leases.is_empty()) {
        last_call::call(c"_tidy_before_commit");
    }
}

/// What there is to do, in the transaction that is about to commit; from now on nothing is.
pub(crate) fn take() -> Work {
    WORK.take()
}
