//! What a call has passed by: deadlines of tasks that others have a use for.
//!
//! It leaves them as they are, so that the next one would pass all of them again. Where there are many (the workers of an
//! action are gone, with all that they had), a backend remembers for a second, or in proportion to what it took, up to where there
//! was nothing for its actions. What comes up below that meanwhile, with a deadline that had passed before it was committed, is
//! found when that is over.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::pg::clock::Time;
use crate::pg::session;

/// For how long it is remembered at least, and in proportion to how long the walk took.
const LEAST: Duration = Duration::from_secs(1);
const PROPORTION: u32 = 4;

/// A walk from the low end on, by one look or several, of which each goes on where the one before was cut short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    /// Before this deadline there was nothing.
    pub(super) up_to: Time,
    /// What came up after this moment it may have missed.
    pub(crate) since: Instant,
    /// How long its looks took.
    took: Duration,
    /// When the last of them was over.
    at: Instant,
}

impl Walked {
    /// When it is forgotten, and a look begins at the low end again.
    pub(crate) fn until(&self) -> Instant {
        self.at + (PROPORTION * self.took).max(LEAST)
    }
}

struct PassedBy {
    action_nos: Vec<i32>,
    walked: Walked,
    /// For which time of the queue.
    now: Time,
    /// Only for this call.
    call: Option<u64>,
}

thread_local! {
    /// Of calls that take whatever is there: of their actions nothing was.
    static ANY: RefCell<Option<PassedBy>> = const { RefCell::new(None) };
    /// Of calls that end what is of use to them: nothing was.
    static OF_USE: RefCell<Option<PassedBy>> = const { RefCell::new(None) };
    /// The number of the last call that may go to sleep.
    static CALL: Cell<u64> = const { Cell::new(0) };
}

/// Another call that may go to sleep begins.
pub(crate) fn begin_call() {
    CALL.set(CALL.get() + 1);
}

/// The walk that a look for these actions goes on with.
pub(super) fn known(action_nos: &[i32], only_of_use: bool, now: Time) -> Option<Walked> {
    let holds = |k: &&PassedBy| {
        k.action_nos == action_nos
            && k.now <= now
            && Instant::now() < k.walked.until()
            && k.call.is_none_or(|call| call == CALL.get())
    };
    let kept = if only_of_use { &OF_USE } else { &ANY };
    kept.with_borrow(|known| known.as_ref().filter(holds).map(|k| k.walked))
}

/// Up to this deadline there was nothing for these actions, or nothing of use, in a look that began then and went on with that
/// walk. In a transaction that has an id this holds as long as the call sleeps: what the transaction has changed itself may come
/// back with a savepoint.
pub(super) fn remember(
    action_nos: &[i32],
    only_of_use: bool,
    up_to: Time,
    before: Option<Walked>,
    began: Instant,
    now: Time,
) {
    let call = session::has_transaction_id().then(|| CALL.get());
    if call.is_some() && !only_of_use {
        return;
    }
    let at = Instant::now();
    let walked = Walked {
        up_to,
        since: before.map_or(began, |walked| walked.since),
        took: before.map_or(Duration::ZERO, |walked| walked.took) + (at - began),
        at,
    };
    let kept = if only_of_use { &OF_USE } else { &ANY };
    kept.set(Some(PassedBy { action_nos: action_nos.to_vec(), walked, now, call }));
}
