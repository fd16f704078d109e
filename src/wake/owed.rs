//! Wake-ups that wait for the end of a transaction: they are sent once its locks are gone.

use std::cell::RefCell;

use super::channels::wake;
use crate::pg::latch::{Channel, HowMany};

thread_local! {
    /// Whom to wake as soon as the locks of the (sub)transaction that has ended are gone.
    static OWED: RefCell<Vec<(Channel, HowMany)>> = const { RefCell::new(Vec::new()) };
}

/// Has so many waiting calls woken when the locks of what has just ended are gone: one that is woken before might find
/// them held.
pub(super) fn owe(channel: Channel, how_many: HowMany) {
    OWED.with_borrow_mut(|owed| owed.push((channel, how_many)));
}

/// Sends what is owed.
pub(super) fn pay() {
    if OWED.with_borrow(Vec::is_empty) {
        return;
    }
    for (channel, how_many) in OWED.take() {
        wake(channel, how_many);
    }
}
