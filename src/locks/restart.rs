//! Running a call that locks in waves: see [`order`](super::order).

use std::time::Duration;

use super::edges::lock_edges;
use super::forms::LockStrength;
use super::guard::guard;
use super::live::lock;
use super::order::{self, Wanted};
use super::settled::hold_outcomes;
use crate::error::Result;
use crate::number::TaskNo;
use crate::pg::block::in_transaction_block;
use crate::pg::session::{check_for_interrupts, nap};
use crate::pg::subtransaction::{self, Deadlocked};

/// After so many new beginnings the call waits out of order. Mostly each has waited for another transaction to end, so
/// that only a call in a queue that is stormed all the while gets there.
const MOST_ATTEMPTS: usize = 100;

/// So many deadlocks are no error, and for how long it does nothing after the first; after the second twice as long, after the
/// third three times.
const MOST_DEADLOCKS: u32 = 5;
const AFTER_DEADLOCK: Duration = Duration::from_millis(50);

/// Runs a call that locks in waves. It may be run several times; what an earlier run changed is undone.
///
/// Each such call that is no part of another is a subtransaction. A transaction that makes many of them stops using
/// them in time, and below a savepoint there are none (see [`subtransaction::may_nest`]): such calls wait in the order
/// in which they come.
///
/// A call that is a transaction of its own begins anew after a deadlock, too, some times: it gives up all that it has locked. The order of
/// locks leaves one that it cannot prevent. `SKIP LOCKED` waits in PostgreSQL where it comes to a row at the moment in which an
/// update of it is committed, and a third transaction has locked the new version (`heap_lock_updated_tuple`). In a transaction
/// block earlier calls may have locked what the other one waits for.
pub(crate) fn restartable<R>(call: impl Fn() -> Result<R>) -> Result<R> {
    restartable_behind(|| (), call)
}

/// The same, for a call that has something to lock that comes before all in the order: each attempt locks that `first`, and gives it up
/// with the rest.
pub(crate) fn restartable_behind<R>(first: impl Fn(), call: impl Fn() -> Result<R>) -> Result<R> {
    let call = |wanted: &Wanted| {
        first();
        lock_wanted(wanted);
        call()
    };
    if order::is_under_way() || !subtransaction::may_nest() {
        return call(&Wanted::default());
    }
    let mut wanted = Wanted::default();
    let mut deadlocks = if in_transaction_block() { MOST_DEADLOCKS } else { 0 };
    for _ in 0..MOST_ATTEMPTS {
        check_for_interrupts();
        order::begin(wanted.clone());
        let _over = Over;
        let attempt = || subtransaction::undoable(|| call(&wanted));
        let done = if deadlocks >= MOST_DEADLOCKS {
            attempt()
        } else {
            subtransaction::unless_deadlocked(attempt).unwrap_or_else(|Deadlocked| {
                deadlocks += 1;
                // So that the other transaction gets what this one has given up, before this one takes it again.
                nap(deadlocks * AFTER_DEADLOCK);
                None
            })
        };
        if let Some(result) = done {
            return result;
        }
        wanted = order::end();
    }
    call(&Wanted::default())
}

/// Forgets the attempt, whichever way the call ends.
struct Over;

impl Drop for Over {
    fn drop(&mut self) {
        order::end();
    }
}

fn lock_wanted(wanted: &Wanted) {
    let strength = |change: bool| if change { LockStrength::Update } else { LockStrength::KeyShare };
    if wanted.guard {
        guard();
    }
    if !wanted.live.is_empty() {
        lock(&wanted.live.iter().copied().collect::<Vec<_>>(), strength(wanted.change_live));
    }
    if !wanted.settled.is_empty() {
        let task_nos: Vec<TaskNo> = wanted.settled.iter().copied().collect();
        hold_outcomes(&task_nos, strength(wanted.change_settled));
    }
    if !wanted.edges.is_empty() {
        lock_edges(&wanted.edges.iter().copied().collect::<Vec<_>>());
    }
}
