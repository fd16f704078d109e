//! What is tidied away right before a transaction commits.
//!
//! What upkeep locks in a transaction that stays open is out of reach of all others until its end. Some of it can
//! wait for that end, and is done then: leases that pass on to another task, and settled tasks whose
//! retention is over. Nothing is lost where it is not done, in a transaction that is prepared, for instance: another
//! call does it later.

use super::at_end;
use super::work::{WORK, Work};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session;

pub(crate) use super::work::take;

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
