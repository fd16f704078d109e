//! Locks are waited for in one global order, so that single calls do not meet in deadlocks. What is left of these is said at
//! [`restartable`](super::restartable).
//!
//! The order is [`Rank`], and within a rank by number; rows of unique keys come before all. A call that knows from the start what
//! it has to lock keeps to it. One that finds out wave by wave (which dependents a deleted task leaves alone, what aborted because of a task
//! that is retried) cannot; and a task may move from one table to another while it is waited for. So such a call runs
//! as [`restartable`](super::restartable): *it waits for a row only if it holds nothing of that rank or a later one*. Where it would have
//! to, it gives up all it holds, by rolling back to where it began, and begins anew: it then locks first, in the order,
//! all for which it has had to do so by now. A new beginning mostly waits for the transaction that was in the way, so that the
//! call makes progress.
//!
//! A transaction that waits for a row of such a call therefore waits for one that either waits itself for something
//! later in the order, or for nothing. A transaction of several calls keeps the locks of all of them: two such
//! transactions may still meet in a deadlock, as any others in PostgreSQL, and the one that gets `40P01` is to be run
//! again.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::forms::LockStrength;
use crate::number::TaskNo;
use crate::pg::subtransaction;

/// What is locked, in the order of locking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    #[default]
    Nothing,
    /// The row of `graph_guard`.
    Guard,
    /// Rows of `run`, then `blocked`, `scheduled`, `parked`; in each by number.
    Live,
    /// Rows of `settled`, by number.
    Settled,
    /// Rows of `dependency` that are about to be changed or removed, by the numbers of both ends.
    Edges,
    /// Ids of tasks being inserted, in their order; after them those whose old tasks are removed to make place, which
    /// no other call can be inserting. Rows of merge keys come after all.
    Ids,
}

/// What a call could not wait for where it came to it, and locks from the start the next time.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// The row of `graph_guard`.
    pub(super) guard: bool,
    /// Tasks whose live rows are locked.
    pub(super) live: BTreeSet<TaskNo>,
    /// Settled tasks whose rows are locked.
    pub(super) settled: BTreeSet<TaskNo>,
    /// Dependencies that are locked: the task waited for, the task that waits.
    pub(super) edges: BTreeSet<(TaskNo, TaskNo)>,
    /// The live rows are about to be changed; else they are only kept from settling.
    pub(super) change_live: bool,
    /// The rows of settled tasks are about to be changed; else they are only held.
    pub(super) change_settled: bool,
}

/// One run of a restartable call.
#[derive(Debug, Default)]
struct Attempt {
    held: Rank,
    guarded: bool,
    wanted: Wanted,
}

thread_local! {
    /// The restartable call under way. Never outlives the call.
    static ATTEMPT: RefCell<Option<Attempt>> = const { RefCell::new(None) };
}

/// Whether a restartable call is under way.
pub(super) fn is_under_way() -> bool {
    ATTEMPT.with_borrow(Option::is_some)
}

/// A restartable call begins, and wants these from the start.
pub(super) fn begin(wanted: Wanted) {
    ATTEMPT.set(Some(Attempt { wanted, ..Attempt::default() }));
}

/// The call has ended, or has given up what it held: what it wants from the start the next time.
pub(super) fn end() -> Wanted {
    ATTEMPT.take().unwrap_or_default().wanted
}

/// Whether the call under way may wait for a lock of this rank: always, if it is not restartable.
pub(crate) fn may_wait(rank: Rank) -> bool {
    ATTEMPT.with_borrow(|attempt| attempt.as_ref().is_none_or(|attempt| attempt.held < rank))
}

/// The call under way has locks of this rank from now on.
pub(crate) fn holds(rank: Rank) {
    ATTEMPT.with_borrow_mut(|attempt| {
        if let Some(attempt) = attempt {
            attempt.held = attempt.held.max(rank);
        }
    });
}

/// Asks for the guard. A restartable call that has it already may ask again whenever it likes; one that holds
/// anything else begins anew.
pub(crate) fn before_guard() {
    let late = ATTEMPT.with_borrow(|attempt| {
        attempt.as_ref().is_some_and(|attempt| !attempt.guarded && attempt.held >= Rank::Guard)
    });
    if late {
        restart(|wanted| wanted.guard = true);
    }
    ATTEMPT.with_borrow_mut(|attempt| {
        if let Some(attempt) = attempt {
            attempt.guarded = true;
            attempt.held = attempt.held.max(Rank::Guard);
        }
    });
}

/// Begins anew, if the call can: something that it has decided by has changed meanwhile.
pub(crate) fn restart_if_possible() {
    if is_under_way() {
        restart(|_| ());
    }
}

/// Begins anew, with these live rows.
pub(crate) fn restart_with_live(task_nos: &[TaskNo], strength: LockStrength) -> ! {
    restart(|wanted| {
        wanted.live.extend(task_nos);
        wanted.change_live |= strength == LockStrength::Update;
    })
}

/// Begins anew, with these rows of settled tasks.
pub(crate) fn restart_with_settled(task_nos: &[TaskNo], strength: LockStrength) -> ! {
    restart(|wanted| {
        wanted.settled.extend(task_nos);
        wanted.change_settled |= strength == LockStrength::Update;
    })
}

/// Begins anew, with these dependencies.
pub(crate) fn restart_with_edges(edges: &[(TaskNo, TaskNo)]) -> ! {
    restart(|wanted| wanted.edges.extend(edges))
}

fn restart(add: impl FnOnce(&mut Wanted)) -> ! {
    ATTEMPT.with_borrow_mut(|attempt| add(&mut attempt.get_or_insert_default().wanted));
    subtransaction::undo()
}
