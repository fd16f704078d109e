//! Settling tasks: storing how they ended, and signalling that to their dependents.
//!
//! What ends a task comes through here: returns, cancels, deadlines, lost dependencies, spontaneous completion and the
//! other causes ([`Cause`](crate::state::Cause)). The caller has removed the tasks' live rows, so no other transaction can
//! settle them.

mod cancel;
pub(crate) mod commit;
mod countdown;
pub(crate) mod fold;
mod lost;
pub(crate) mod merge_keys;
pub(crate) mod riders;
mod shared_end;
mod store;
pub(crate) mod suspended;
mod unsent;

pub(crate) use crate::store::settled::Ending;
pub(crate) use cancel::cancel_locked;
pub(crate) use countdown::{Delta, Deltas, apply, deltas, release_or_complete, without_open};
pub(crate) use lost::{Lost, TOO_FEW};
pub(crate) use store::store;

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::state::Outcome;

/// Stores the endings and signals the dependents, level by level, until nothing more follows.
pub(crate) fn settle(endings: Vec<Ending>, now: Time) {
    let (news, at) = store_all(&endings, now);
    propagate(news, at);
}

/// Stores the endings, and those of the tasks that rode on them; returns all ends, for the dependents, and when these tasks settled.
pub(crate) fn store_all(endings: &[Ending], now: Time) -> (Vec<(TaskNo, Outcome)>, Time) {
    let at = store(endings, now);
    let holders: Vec<Ending> = endings.iter().filter(|e| e.keyed).cloned().collect();
    let riders = if holders.is_empty() { Vec::new() } else { shared_end::of_riders(&holders) };
    // What settles because of another settles later, if only by a moment: `endings` shows it behind that.
    let at = if riders.is_empty() { at } else { store(&riders, at.next()) };
    (endings.iter().chain(&riders).map(|e| (e.task_no, e.outcome)).collect(), at)
}

/// Signals the dependents of tasks whose endings are stored, and settles what that ends in turn: tasks
/// that cannot do without one that was lost abort, spontaneous tasks with nothing left to wait for complete if their time has come.
/// `at`: when they settled.
pub(crate) fn propagate(news: Vec<(TaskNo, Outcome)>, at: Time) {
    if !news.is_empty() {
        propagate_deltas(countdown::deltas(&news), Some(at), at);
    }
}

/// The same from what the first level of dependents has to count, and when that settled (see [`apply`]).
pub(crate) fn propagate_deltas(mut deltas: Deltas, mut settled_at: Option<Time>, mut now: Time) {
    while !deltas.is_empty() {
        check_for_interrupts();
        let endings = apply(deltas, settled_at, now);
        now = store(&endings, now.next());
        settled_at = Some(now);
        let news: Vec<(TaskNo, Outcome)> = endings.iter().map(|e| (e.task_no, e.outcome)).collect();
        deltas = if news.is_empty() { Deltas::new() } else { countdown::deltas(&news) };
    }
}
