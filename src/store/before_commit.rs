//! What is tidied away right before a transaction commits.
//!
//! What upkeep locks in a transaction that stays open is out of reach of all others until its end. Some of it can
//! wait for that end, and is done then, in an instant: leases that pass on to another task, and settled tasks whose
//! retention is over. Nothing is lost where it is not done, in a transaction that is prepared, for instance: another
//! call does it later.

use std::cell::RefCell;

use super::at_end;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::{last_call, session};

/// What is to be done. Hints: what a savepoint has undone is found to need nothing.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Deadlines and keepers of leases that are to be handed on.
    pub(crate) leases: Vec<(Time, TaskNo)>,
    /// How many settled tasks are to be removed at most.
    pub(crate) sweep: usize,
}

thread_local! {
    static WORK: RefCell<Work> = RefCell::default();
}

/// Has a lease that others need, too, handed on.
pub(crate) fn hand_on(deadline: Time, keeper: TaskNo) {
    add(|work| work.leases.push((deadline, keeper)));
}

/// Has so many more settled tasks removed whose retention is over, at most.
pub(crate) fn sweep(bound: usize) {
    add(|work| work.sweep = work.sweep.saturating_add(bound));
}

fn add(what: impl FnOnce(&mut Work)) {
    // At the higher levels of isolation the commit could fail, for the sake of what can wait.
    if !session::is_read_committed() {
        return;
    }
    at_end::listen();
    WORK.with_borrow_mut(what);
}

/// The transaction is about to commit.
pub(super) fn tidy() {
    if WORK.with_borrow(|work| !work.leases.is_empty() || work.sweep > 0) {
        last_call::call(c"_tidy_before_commit");
    }
}

/// What there is to do, in the transaction that is about to commit; from now on nothing is.
pub(crate) fn take() -> Work {
    WORK.take()
}
