//! Up to where there was nothing for a call's actions among the leases that have passed.
//!
//! It leaves most of those of others as they are, so that the next call would pass all of them again. Where there are many (the
//! workers of an action are gone, with all that they had), a backend remembers for a second where it has come to. What comes up below that
//! meanwhile, with a deadline that had passed before it was committed, is found when the second is over.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::pg::clock::Time;
use crate::pg::session;

/// For how long it is remembered.
const KEPT: Duration = Duration::from_secs(1);

struct PassedBy {
    action_nos: Vec<i32>,
    reached: Time,
    /// For which time of the queue.
    now: Time,
    at: Instant,
}

thread_local! {
    static PASSED_BY: RefCell<Option<PassedBy>> = const { RefCell::new(None) };
}

/// The deadline up to which there was nothing for these actions.
pub(super) fn known(action_nos: &[i32], now: Time) -> Option<Time> {
    let holds = |k: &&PassedBy| k.action_nos == action_nos && k.now <= now && k.at.elapsed() < KEPT;
    PASSED_BY.with_borrow(|known| known.as_ref().filter(holds).map(|k| k.reached))
}

/// Remembers it; not in a transaction that has an id: what that has changed itself may come back with a savepoint.
pub(super) fn remember(action_nos: &[i32], reached: Time, now: Time) {
    if !session::has_transaction_id() {
        PASSED_BY.set(Some(PassedBy { action_nos: action_nos.to_vec(), reached, now, at: Instant::now() }));
    }
}
