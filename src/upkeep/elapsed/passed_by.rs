//! What a call has passed by: deadlines of tasks that others have a use for.
//!
//! It leaves them as they are, so that the next one would pass all of them again. Where there are many (the workers of an
//! action are gone, with all that they had), a backend remembers for a second, or in proportion to what it took, up to where there
//! was nothing for its actions. What comes up below that meanwhile, with a deadline that had passed before it was committed, is
//! found when that is over.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::pg::clock::Time;
use crate::pg::transaction::{self, End, Listener};
use crate::pg::{latch, session};

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
    /// In a transaction that had an id: what it has changed itself before, in subtransactions of at most this nesting level, comes
    /// back if it is rolled back.
    level: Option<i32>,
}

thread_local! {
    /// Of calls that take whatever is there: of their actions nothing was.
    static ANY: RefCell<Option<PassedBy>> = const { RefCell::new(None) };
    /// Of calls that end what is of use to them: nothing was.
    static OF_USE: RefCell<Option<PassedBy>> = const { RefCell::new(None) };
    /// The nesting level of the last call that may go to sleep, whatever it begins for its looks.
    static LEVEL: Cell<i32> = const { Cell::new(0) };
}

/// A call that may go to sleep begins.
pub(crate) fn begin_call() {
    LEVEL.set(latch::nest_level());
}

static LISTENER: Listener = Listener { ended, ..Listener::DEAF };

/// Forgets what a rollback has made untrue.
fn ended(end: End) {
    OF_USE.with_borrow_mut(|kept| {
        let Some((known, level)) = kept.as_mut().and_then(|known| known.level.map(|level| (known, level)))
        else {
            return;
        };
        match end {
            End::Commit => known.level = None,
            End::CommitSub(sub) if sub == level => known.level = Some(level - 1),
            End::AbortSub(sub) if sub <= level => *kept = None,
            End::CommitSub(_) | End::AbortSub(_) => {}
            End::Abort | End::Prepare => *kept = None,
        }
    });
}

/// The walk that a look for these actions goes on with.
pub(super) fn known(action_nos: &[i32], only_of_use: bool, now: Time) -> Option<Walked> {
    let holds =
        |k: &&PassedBy| k.action_nos == action_nos && k.now <= now && Instant::now() < k.walked.until();
    let kept = if only_of_use { &OF_USE } else { &ANY };
    kept.with_borrow(|known| known.as_ref().filter(holds).map(|k| k.walked))
}

/// Up to this deadline there was nothing for these actions, or nothing of use, in a look that began then and went on with that
/// walk. What the transaction has changed itself may come back with a savepoint.
pub(super) fn remember(
    action_nos: &[i32],
    only_of_use: bool,
    up_to: Time,
    before: Option<Walked>,
    began: Instant,
    now: Time,
) {
    let level = session::has_transaction_id().then(|| LEVEL.get());
    if level.is_some() {
        if !only_of_use {
            return;
        }
        transaction::listen(&LISTENER);
    }
    let at = Instant::now();
    let walked = Walked {
        up_to,
        since: before.map_or(began, |walked| walked.since),
        took: before.map_or(Duration::ZERO, |walked| walked.took) + (at - began),
        at,
    };
    let kept = if only_of_use { &OF_USE } else { &ANY };
    kept.set(Some(PassedBy { action_nos: action_nos.to_vec(), walked, now, level }));
}
