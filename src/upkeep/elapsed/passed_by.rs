//! What a call in a transaction that may stay open has passed by: deadlines of tasks that others have a use for.
//!
//! It leaves them as they are, so that the next one would pass all of them again. Where there are many (the workers of an
//! action are gone, with all that they had), a backend remembers for a second up to where there was nothing for its
//! actions. What comes up below that meanwhile, with a deadline that had passed before it was committed, is found a second
//! later.

use std::cell::RefCell;
use std::time::Duration;

use crate::pg::clock::{Time, wall};
use crate::pg::session;

/// For how long it is remembered.
const WHILE: Duration = Duration::from_secs(1);

struct PassedBy {
    action_nos: Vec<i32>,
    /// Only for a call that ends what is of use to it: of what there is, nothing was.
    only_of_use: bool,
    /// Before this deadline there is nothing of theirs.
    deadline: Time,
    /// When, by the server's clock, and for which time of the queue.
    at: Time,
    now: Time,
}

thread_local! {
    static PASSED_BY: RefCell<Option<PassedBy>> = const { RefCell::new(None) };
}

/// Where a look for these actions begins, of what is there or of what is of use to them.
pub(super) fn start(action_nos: &[i32], only_of_use: bool, now: Time) -> Time {
    let wall = wall();
    PASSED_BY.with_borrow(|known| {
        let holds = |k: &&PassedBy| {
            let is_asked = k.action_nos == action_nos && (only_of_use || !k.only_of_use);
            is_asked && k.at <= wall && wall < k.at + WHILE && k.now <= now
        };
        known.as_ref().filter(holds).map_or(Time::BEGINNING, |k| k.deadline)
    })
}

/// Up to this deadline there was nothing for these actions, or nothing of use. Not in a transaction that has an id: what it has
/// changed itself may come back with a savepoint.
pub(super) fn remember(action_nos: &[i32], only_of_use: bool, deadline: Time, now: Time) {
    if !session::has_transaction_id() {
        PASSED_BY.set(Some(PassedBy {
            action_nos: action_nos.to_vec(),
            only_of_use,
            deadline,
            at: wall(),
            now,
        }));
    }
}
