//! Ending a reason for which claims set tasks aside, although claims go on, however many there are.
//!
//! A claim parks what it meets of a paused group or of a workgroup that is held back. The call that ends the reason has to
//! wait for the claims that have done so and not committed, and then brings back what they have parked. Row locks alone are
//! not enough: claims that share one come and go, and a call that waits to lock the row exclusively may wait for ever. So a claim
//! passes a turnstile first: a lock that it only tries. The turnstile is closed for new claims as soon as a call waits to close
//! it, so that call does not wait for claims that come later. It stays closed until the transaction of that call ends; what a
//! claim meets meanwhile it puts off for a second.
//!
//! A turnstile is a lock of the lock manager, held until the end of the transaction. There are few of them, each for many names:
//! a claim may meet very many, and the server's lock table has little room.

use crate::pg::lock::{self, Key, Mode};

/// What tasks are parked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason<'a> {
    Group(&'a str),
    Workgroup(&'a str),
}

/// How many turnstiles there are.
const MOST_KEYS: u64 = 64;

impl Reason<'_> {
    fn key(self) -> Key {
        let key = match self {
            Reason::Group(name) => Key::new(&["group", name]),
            Reason::Workgroup(name) => Key::new(&["workgroup", name]),
        };
        key.one_of(MOST_KEYS, "turnstile")
    }
}

/// Lets a claim through, unless a call has closed it or waits to (for this reason or another of the same turnstile), or the server
/// has no room for one more lock. No call ends the reason after that before the transaction of the claim ends.
pub(crate) fn pass(reason: Reason) -> bool {
    lock::try_lock_if_room(reason.key(), Mode::Shared)
}

/// Closes it; waits for the claims that have passed, and for other calls that have closed it. Later statements see
/// what these have parked.
pub(crate) fn close(reason: Reason) {
    lock::lock(reason.key(), Mode::Alone);
}
