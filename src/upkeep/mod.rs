//! What time makes necessary, done step by step by calls that claim tasks, by the background worker, and by
//! `taskq.maintain()` for quiet times. The kinds of it are in [`steps::KINDS`].
//!
//! Rows of tasks that others have locked are passed over. Inserting the run of a schedule may wait for a lock, but not for long.
//! Inside a caller's transaction block, function or larger statement the steps are as small as the claim itself, since what they
//! touch is hostage to that transaction. A call that waits does none of it before it ends, but for making due tasks ready that it
//! may be granted: it has the rest done by a process that commits (`background::call_if`), if there can be one.

pub(crate) mod by_time;
pub(crate) mod due;
pub(crate) mod elapsed;
pub(crate) mod held_back;
mod look;
mod next;
mod owed;
pub(crate) mod retention;
mod step;
pub(crate) mod steps;

pub(crate) use look::{Due, look};
pub(crate) use next::next_task;
pub(crate) use owed::{Next, owed};
pub(crate) use step::{STEP, Step};

use crate::clock;
use crate::ends::before_commit;
use crate::pg::block::in_transaction_block;
use crate::pg::clock::Time;
use crate::pg::session;
use crate::pg::subtransaction::unless_others_were_faster;
use crate::schedules;
use crate::settle::fold;
use crate::store::{lease, low_ends};

/// How many tasks whose time has come one step makes ready at most, for a claim that has room for so many. Each step goes past what the
/// ones before it in the same transaction have removed.
const MOST_DUE: usize = 10_000;

/// How many tries whose time has come are ended at most by one step of a call whose transaction does not stay open; and how
/// many of them of actions that it does not ask for.
const MOST_ENDED: usize = 2_000;
const ENDED_FOR_OTHERS: usize = 100;

/// What a round of upkeep did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Upkeep {
    /// It changed something: there may be other actions, lanes and entries to claim from.
    pub(crate) changed: bool,
    /// A step reached its bound: more may be due.
    pub(crate) more: bool,
    /// There are settled tasks whose retention is over, for the end of the call.
    pub(crate) expired: bool,
    /// Something is due that a transaction which may stay open leaves to others.
    pub(crate) left: bool,
}

/// Upkeep before a claim of `room` tasks of these actions. What a [`look`] has found is not looked for again.
///
/// In a transaction that may stay open what it does is hostage to that. So its steps are small then, and some of what is
/// due for others it leaves to them.
pub(crate) fn before_claim(action_nos: &[i32], room: usize, looked: Option<Due>, now: Time) -> Upkeep {
    let due = looked.unwrap_or_else(|| look(action_nos, now));
    let hostage = in_transaction_block();
    let mut upkeep = Upkeep {
        expired: due.expired,
        left: hostage && (due.schedule || due.signal || due.by_time),
        ..Upkeep::default()
    };
    let bound = if hostage { room.clamp(1, STEP as usize) as i32 } else { STEP };
    let due_bound = bound.max(room.min(MOST_DUE) as i32);
    let starts = low_ends::starts(action_nos);
    // Before anything is claimed: what has expired must not be granted.
    if due.by_time {
        unless_others_were_faster(|| {
            let step = by_time::step(due_bound, &starts.by_time, hostage, now);
            upkeep.changed |= step.done;
            upkeep.more |= step.more;
        });
    }
    if due.lease {
        let (own, others) = if hostage { (bound as usize, 0) } else { (MOST_ENDED, ENDED_FOR_OTHERS) };
        let looked = elapsed::look_after(&elapsed::Caller { action_nos, own, others }, starts.lease, now);
        upkeep.changed |= looked.ended;
        upkeep.more |= looked.goes_on();
        upkeep.left |= hostage && looked.of_others;
    }
    // After the leases: the try that has ended may be of the run that kept a schedule from its next.
    if due.schedule && !hostage {
        upkeep.changed |= schedules::fire_due(STEP, now);
    }
    if due.tasks {
        let released = due::release(action_nos, starts.scheduled, due_bound, now);
        upkeep.changed |= released.done;
        upkeep.more |= released.more;
    }
    if due.signal {
        upkeep.changed |= fold(now);
    }
    upkeep
}

/// The body of `taskq._tidy_before_commit()`: what [`before_commit`] has kept until now.
pub(crate) fn tidy_before_commit() {
    let work = before_commit::take();
    // It may have become so after the call. What is to be done can wait, and the commit must not fail for it.
    if session::is_read_only() {
        return;
    }
    lease::tidy::hand_on(work.leases);
    if work.sweep > 0 {
        retention::sweep_from_low_end(work.sweep, clock::now());
    }
}

/// Folds countdown rows, if there are any; returns whether that changed anything. A call whose transaction may stay
/// open counts for a task only if nothing more has to be sent to that, or a loss was sent.
pub(crate) fn fold(now: Time) -> bool {
    if in_transaction_block() { fold::due(STEP as usize, now) } else { fold::some(STEP, now) }
}
