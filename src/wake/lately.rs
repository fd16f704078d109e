//! When this backend has looked last, and found nothing due.
//!
//! A call that is granted as many tasks as it may have does not need what time has made necessary: it leaves that to the
//! others, and to itself a moment later. So such a call looks for it only every [`LATELY`]. A call that is granted less
//! looks always: nothing that is due stays hidden from who asks for it. What can be late, and by so much, is a due task
//! of a higher priority than those that are ready.

use std::cell::RefCell;
use std::time::Duration;

use crate::guc;
use crate::pg::clock::{Time, Wall, wall};

/// For how long nothing is taken to be due.
const LATELY: Duration = Duration::from_millis(10);

thread_local! {
    /// For which actions this backend has looked, and when.
    static LOOKED: RefCell<Option<(Vec<i32>, Wall)>> = const { RefCell::new(None) };
}

/// A look has found that something is due, or nothing, for these actions.
pub(crate) fn note(action_nos: &[i32], is_due: bool) {
    LOOKED.set((!is_due).then(|| (action_nos.to_vec(), wall())));
}

/// Whether there was nothing due for these actions a moment ago. Where a test sets the clock a moment is no time.
pub(crate) fn nothing_was_due(action_nos: &[i32]) -> bool {
    LOOKED.with_borrow(|looked| {
        looked.as_ref().is_some_and(|(of, at)| {
            let now = wall();
            of == action_nos && *at <= now && now < *at + LATELY && guc::fake_now().is_none()
        })
    })
}

/// The next call looks: not for what is due, but for where claims begin.
pub(crate) fn look_soon() {
    LOOKED.take();
}

/// This backend has made something that is due then.
pub(super) fn will_be_due(time: Time) {
    if time.by_server() < wall() + LATELY {
        LOOKED.take();
    }
}
