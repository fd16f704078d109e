//! The waiting call of this backend: its registration, what its looks have skipped, and what it owes to calls that go on
//! sleeping when it leaves.

use std::cell::Cell;

use super::channels::{
    ANY_READY_CHANNEL, POST_WANTED, SOON_CHANNEL, TIMER_CHANNEL, WATCH_CHANNEL, ready_channel, wake,
};
use super::notes::LISTENER;
use super::registered;
use crate::pg::latch::{self, Channel, HowMany};
use crate::pg::transaction;

thread_local! {
    /// Whether this look has skipped something that it might have had, had others not held it just then; `None` if
    /// that is not going to be asked.
    static PASSED_OVER: Cell<Option<bool>> = const { Cell::new(None) };
}

/// To be called before a look that may be followed by a sleep.
pub(crate) fn begin_look() {
    PASSED_OVER.set(Some(false));
}

/// This look skips something that it might have had, had others not held it just then: such as a bucket, a slot or a
/// lock that is only tried. If they release it without a change that wakes, no wake-up comes for it.
pub(crate) fn passed_over() {
    PASSED_OVER.set(PASSED_OVER.get().map(|_| true));
}

/// Whether this call may sleep, and so wants to know what it has [`passed_over`].
pub(crate) fn may_sleep() -> bool {
    PASSED_OVER.get().is_some()
}

/// Ends what [`begin_look`] has begun; whether the look has [`passed_over`] anything.
pub(crate) fn end_look() -> bool {
    PASSED_OVER.take().unwrap_or(false)
}

/// To be called by a waiting call that was woken and has found nothing. If it is registered for any action, it may have
/// been woken for one that is not its own: it wakes the next of those calls. Each wakes one with a lower number than
/// its own, so those get their turn, and that ends.
pub(crate) fn pass_on() {
    if registered::under(ANY_READY_CHANNEL) {
        latch::wake_next_lower(ANY_READY_CHANNEL);
    }
}

/// The channels under which a waiting call can be found; given up when it is dropped, or by the end of the transaction, or of a
/// part of it, that ends the call.
pub(crate) struct Registration {
    channels: Vec<Channel>,
}

impl Registration {
    /// Makes this backend findable under each of the channels, from the subtransaction of this level on.
    pub(crate) fn new(channels: Vec<Channel>, level: i32) -> Self {
        transaction::listen(&LISTENER);
        for channel in &channels {
            registered::add(*channel, level);
        }
        Registration { channels }
    }

    /// Says that this backend looks soon whether it is woken or not. Given up before that look.
    pub(crate) fn soon() -> Self {
        Registration::new(vec![SOON_CHANNEL], latch::nest_level())
    }

    /// Says that this backend waits for a post of the server.
    pub(crate) fn wants_post() -> Self {
        Registration::new(vec![POST_WANTED], latch::nest_level())
    }

    /// The channels.
    pub(crate) fn channels(&self) -> &[Channel] {
        &self.channels
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // While a panic carries an error outwards no lock may be touched: Postgres has yet to release those that
        // it holds inside. The abort gives the registrations up.
        if std::thread::panicking() {
            return;
        }
        // The last one first: see `stop`.
        for channel in self.channels.iter().rev() {
            let there = registered::remove(*channel);
            // It may have been the one to know what is due.
            if there && *channel == WATCH_CHANNEL {
                latch::wake(*channel, HowMany::UpTo(1));
            }
        }
    }
}

/// To be called when a call for work ends, after it has given up its registrations, if it had any. A wake-up that
/// came after its last look (`waited`) it hands on to one waiting call of each channel, since it is not known by
/// which of them it came.
///
/// Otherwise it wakes those that something is left for: `left` returns the actions, 0 for any. It is called only
/// if a call sleeps that could be woken.
pub(crate) fn hand_on(action_nos: &[i32], waited: bool, left: impl FnOnce() -> Vec<i32>) {
    let mut channels = action_nos.iter().map(|n| ready_channel(*n)).chain([TIMER_CHANNEL]);
    if waited && latch::is_set() {
        for channel in channels {
            latch::wake(channel, HowMany::UpTo(1));
        }
        latch::wake_highest(ANY_READY_CHANNEL, HowMany::UpTo(1));
    } else if channels.any(latch::is_any_asleep) || latch::is_any_asleep(ANY_READY_CHANNEL) {
        let mut left = left();
        left.sort_unstable();
        left.dedup();
        let any = left.first() == Some(&0);
        let one = HowMany::UpTo(1);
        let woken: usize = left.iter().filter(|n| **n != 0).map(|n| wake(ready_channel(*n), one)).sum();
        // A woken call learns by its look what is due next.
        if any && woken == 0 {
            wake(TIMER_CHANNEL, one);
        }
    }
}
