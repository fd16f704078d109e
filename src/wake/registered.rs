//! The channels under which this backend can be found.

use std::cell::RefCell;

use super::channels::{READY, READY_ANY, TIMER, WATCH};
use super::owed::owe;
use crate::pg::latch::{self, Channel, HowMany};

thread_local! {
    /// Under which channels this backend can be found, and in which subtransaction it registered.
    static REGISTERED: RefCell<Vec<(Channel, i32)>> = const { RefCell::new(Vec::new()) };
}

/// Whether this backend can be found under the channel.
pub(super) fn under(channel: Channel) -> bool {
    REGISTERED.with_borrow(|registered| registered.iter().any(|(c, _)| *c == channel))
}

/// Makes this backend findable under the channel, from the subtransaction of this level on.
pub(super) fn add(channel: Channel, level: i32) {
    latch::register(channel);
    REGISTERED.with_borrow_mut(|registered| registered.push((channel, level)));
}

/// Takes one registration under the channel back, the last one; whether there was one.
pub(super) fn remove(channel: Channel) -> bool {
    let there = REGISTERED.with_borrow_mut(|registered| {
        registered.iter().rposition(|(c, _)| *c == channel).map(|n| registered.remove(n)).is_some()
    });
    if there {
        latch::unregister(channel);
    }
    there
}

/// A waiting call that began in a subtransaction of this level or a deeper one is over. Where an error has ended it, it has not
/// given up its registrations: it may have been woken for work just then, and may have been the one to know what is due.
pub(super) fn give_up(level: i32) {
    let mut channels: Vec<Channel> = Vec::new();
    REGISTERED.with_borrow_mut(|registered| {
        registered.retain(|(channel, at)| {
            let over = *at >= level;
            if over {
                channels.push(*channel);
            }
            !over
        });
    });
    for channel in &channels {
        latch::unregister(*channel);
    }
    for channel in channels.into_iter().filter(|c| [READY, READY_ANY, TIMER, WATCH].contains(&c.kind)) {
        owe(channel, HowMany::UpTo(1));
    }
}
