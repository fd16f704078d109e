//! When this backend has looked last, and found nothing due.
//!
//! A call that is granted as many tasks as it may have does not need what time has made necessary: it leaves that to the
//! others, and to itself a moment later. So such a call looks for it only every ten milliseconds, where no limit is
//! to be asked. A call that is granted less looks in any case. What can be late by so much is a due task of a higher priority than
//! those that are ready, and what is due for others.

use std::time::Duration;

use crate::guc;
use crate::memory::{Belief, Latest, Memory};
use crate::pg::clock::{Time, wall};

/// What is due so soon ends that nothing was.
const DUE_SOON: Duration = Duration::from_millis(10);

/// For which actions this backend has looked.
static LOOKED: Memory<Latest<Vec<i32>, ()>> = Memory::of(Belief::NothingDue);

/// A look has found that something is due, or nothing, for these actions.
pub(crate) fn note(action_nos: &[i32], is_due: bool) {
    LOOKED.with(|looked| if is_due { looked.clear() } else { looked.note(action_nos.to_vec(), ()) });
}

/// Whether there was nothing due for these actions a moment ago. Where a test sets the clock a moment is no time.
pub(crate) fn nothing_was_due(action_nos: &[i32]) -> bool {
    LOOKED.with(|looked| looked.get(action_nos).is_some()) && guc::fake_now().is_none()
}

/// The next call looks where claims begin, not for what is due.
pub(crate) fn look_soon() {
    LOOKED.with(Latest::clear);
}

/// This backend has made something that is due then.
pub(super) fn will_be_due(time: Time) {
    if time.by_server() < wall() + DUE_SOON {
        look_soon();
    }
}
