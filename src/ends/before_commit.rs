//! What is tidied away right before a transaction commits.
//!
//! A lease that passes on to another task is handed on then: locked by a transaction that stays open it would be out of reach of all
//! others until its end. Nothing is lost where that is not done, as in a transaction that is prepared: another call does it later.

use super::at_end;
use super::work::WORK;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session;

pub(crate) use super::work::take;

/// Has a lease that others need, too, handed on.
pub(crate) fn hand_on(deadline: Time, keeper: TaskNo) {
    // At the higher levels of isolation the commit could fail, for the sake of what can wait.
    if !session::is_read_committed() {
        return;
    }
    at_end::listen();
    WORK.with_borrow_mut(|work| work.leases.push((deadline, keeper)));
}
