//! Who ends a reason for which claims set tasks aside gets past them, however many there are.
//!
//! A claim sets aside what belongs to a paused group or to a workgroup that is held back; whoever ends that has to wait for the
//! claims that have done so and not committed, and then brings back what they have left. Row locks alone would not do: claims
//! that share one come and go, and whoever waits to have the row for himself may wait for ever. So a claim passes a turnstile
//! first, which it never waits for, and which is closed for it as soon as somebody wants it closed: he waits for those only that are
//! through already. Closed it stays until he commits; what a claim meets meanwhile it puts off for a second.
//!
//! A turnstile is a lock of the lock manager, held until the end of the transaction. There are few of them, each for many names:
//! a claim may meet very many, and the server's lock table has little room.

use crate::pg::lock::{self, Key, Mode};

/// What tasks are set aside for.
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

/// Lets a claim through, unless somebody has closed it or is about to. What the claim reads of the reason after that stays so until
/// its transaction ends.
pub(crate) fn pass(reason: Reason) -> bool {
    lock::try_lock_if_room(reason.key(), Mode::Shared)
}

/// Closes it, waiting for the claims that are through. What they have set aside later statements see.
pub(crate) fn close(reason: Reason) {
    lock::lock(reason.key(), Mode::Alone);
}
