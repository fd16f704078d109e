//! What time makes necessary, done in small bounded steps by calls that claim tasks, by the background worker, and by
//! `taskq.maintain()` for quiet times: elapsed leases, due tasks, deferred signals, retention.
//!
//! Everything here takes its rows with SKIP LOCKED and waits for no other transaction. Inside a caller's transaction block,
//! function or larger statement the steps are as small as the claim itself, since what they touch is hostage to that
//! transaction. A waiting call does none of it: it has what is due done by a process that commits (`background::call_if`).

pub(crate) mod by_time;
pub(crate) mod due;
pub(crate) mod elapsed;
mod held_back;
mod owed;
pub(crate) mod retention;
pub(crate) mod steps;

use std::time::Duration;

pub(crate) use owed::{Next, owed};

use crate::claim::marks;
use crate::claim::marks::Seen;
use crate::clock;
use crate::pg::block::in_transaction_block;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::pg::subtransaction::unless_others_were_faster;
use crate::pg::{session, table};
use crate::schedules;
use crate::settle::fold;
use crate::store::by_time as due_by_time;
use crate::store::low_ends::Found;
use crate::store::{before_commit, lease, low_ends, numbers, run, schedule, scheduled, settled, signal};
use crate::wake::lately;

/// How many rows of a kind one step handles when its transaction does not stay open.
pub(crate) const STEP: i32 = 200;

/// How many tries whose time has come are ended at most by one step of a call whose transaction does not stay open; and how
/// many of them of actions that it does not ask for.
const MOST_ENDED: usize = 2_000;
const ENDED_FOR_OTHERS: usize = 100;

/// What a round of upkeep did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Upkeep {
    /// It changed something that other sessions should see soon.
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
/// In a transaction that may stay open what it does is hostage to that. So it does what its own claim needs, and no more.
pub(crate) fn before_claim(action_nos: &[i32], room: usize, looked: Option<Due>, now: Time) -> Upkeep {
    let due = looked.unwrap_or_else(|| look(action_nos, now));
    let hostage = in_transaction_block();
    let mut upkeep = Upkeep {
        expired: due.expired,
        left: hostage && (due.schedule || due.signal || due.by_time),
        ..Upkeep::default()
    };
    let bound = if hostage { room.clamp(1, STEP as usize) as i32 } else { STEP };
    let starts = low_ends::starts(action_nos, now);
    // Before anything is claimed: what has expired must not be granted.
    if due.by_time {
        unless_others_were_faster(|| {
            let step = by_time::step(bound, &starts.by_time, hostage, now);
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
        let released = due::release(action_nos, starts.scheduled, bound.max(room.min(10_000) as i32), now);
        upkeep.changed |= released.done;
        upkeep.more |= released.more;
    }
    if due.signal {
        upkeep.changed |= fold(now);
    }
    upkeep
}

/// What is due, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Due {
    lease: bool,
    /// Tasks of the actions that were asked about whose time has come.
    pub(crate) tasks: bool,
    signal: bool,
    /// Settled tasks whose retention is over.
    pub(crate) expired: bool,
    schedule: bool,
    /// Timers, suspended tasks and such as expire.
    by_time: bool,
}

impl Due {
    /// Something that changes what there is to claim.
    pub(crate) fn any(&self) -> bool {
        self.lease || self.tasks || self.signal || self.schedule || self.by_time
    }
}

/// Looks for what [`before_claim`] would find to do, and does nothing; moves the marks on the way.
///
/// One look for all kinds: the first that is due, at the low end of an index or further up where nothing is known to be
/// below ([`low_ends`]). And what moves the low-water marks, see [`marks`].
pub(crate) fn look(action_nos: &[i32], now: Time) -> Due {
    let known = marks::known(action_nos);
    let starts = low_ends::starts(action_nos, now);
    let (found, schedule, seen) = table::look(|look| {
        let found = Found {
            lease: lease::first_due(look, starts.lease, now),
            scheduled: scheduled::first_due(
                look,
                action_nos.iter().copied().zip(starts.scheduled.iter().copied()),
                now,
            ),
            by_time: due_by_time::first_due(look, &starts.by_time, now),
            signals: starts.signals && signal::any(look),
            settled: settled::first_expired(look, starts.settled, now),
        };
        let schedule = schedule::any_due(look, now);
        let firsts = run::first_grantable(look, known.each());
        let part = known
            .part
            .map(|p| run::first_grantable_within(look, (p.action_no, p.priority), (p.from, p.to), p.most));
        // The last position is read after the snapshot was taken: see `store::decided`.
        (
            found,
            schedule,
            Seen {
                firsts,
                part,
                look: numbers::look(look),
                xmin_of_others: look.xmin_of_others(),
                pages: look.pages(),
            },
        )
    });
    let few = 8 * (action_nos.len() + seen.firsts.len());
    low_ends::remember(action_nos, &starts, &found, now, (seen.pages, few));
    marks::advance(&known, &seen);
    let due = Due {
        lease: found.lease.is_some(),
        tasks: found.scheduled.iter().any(Option::is_some),
        signal: found.signals,
        expired: found.settled.is_some(),
        schedule,
        by_time: found.by_time.iter().any(Option::is_some),
    };
    lately::note(action_nos, due.any() || due.expired);
    due
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

/// Folds deferred signals, if there are any; returns whether that changed anything. A call whose transaction may stay
/// open counts for others only what frees a task.
pub(crate) fn fold(now: Time) -> bool {
    if in_transaction_block() { fold::due(STEP as usize, now) } else { fold::some(STEP, now) }
}

/// Leases from $1 to $2: further on there may be many dead entries, of tasks that came back in time. What is before $3 is dead.
static NEXT_LEASE: Statement<(Time, Time, Time), Time> = Statement::new(
    c"SELECT l.deadline FROM taskq.lease l
       WHERE l.deadline > $1 AND l.deadline >= $3 AND l.deadline <= $2
       ORDER BY l.deadline LIMIT 1",
);
static NEXT_TASK: Statement<(&[i32], Time, &[Time]), Option<Time>> = Statement::new(
    c"SELECT pg_catalog.min(s.due)
        FROM unnest($1, $3) AS a(action_no, start)
       CROSS JOIN LATERAL (SELECT s.due FROM taskq.scheduled s
                            WHERE s.action_no = a.action_no AND s.due > $2 AND s.due >= a.start
                            ORDER BY s.due LIMIT 1) AS s",
);

/// How far ahead a waiter has to know of deadlines: it does not sleep for longer.
const AHEAD: Duration = Duration::from_secs(60);

/// When the next deadline passes after this time, or the next run of a schedule or something else is due that no worker asks for.
pub(crate) fn next_shared(after: Time) -> Option<Time> {
    let now = clock::now();
    let starts = low_ends::starts(&[], now);
    let lease = NEXT_LEASE.first((after, now + AHEAD, starts.lease));
    let by_time = due_by_time::next_after(after, &starts.by_time);
    lease.into_iter().chain(schedules::next_after(after)).chain(by_time).min()
}

/// When the next task of these actions is due after this time.
pub(crate) fn next_task(action_nos: &[i32], after: Time) -> Option<Time> {
    let starts = low_ends::starts(action_nos, clock::now());
    NEXT_TASK.first((action_nos, after, starts.scheduled)).flatten()
}
