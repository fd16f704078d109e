//! Upkeep step by step, each kind apart: one list of kinds, and one step of each.
//!
//! The background worker and `taskq.maintain()` do all kinds to the end. A call that claims does one step of each kind that is due, and
//! has the worker do the rest: [`keep_up`].

use std::time::Duration;

use super::kind::Kind;
use super::look::Due;
use super::step::{STEP, Step};
use super::{by_time, due, elapsed, parking, retention};
use crate::guc;
use crate::pg::block::in_transaction_block;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::pg::subtransaction::unless_others_were_faster;
use crate::schedules::{self, fire_due};
use crate::settle::fold;
use crate::store::by_time::{KINDS as KINDS_BY_TIME, next_after};
use crate::store::low_ends::{self, Starts};
use crate::store::{seal, tally};

/// How many tasks whose time has come one step makes ready at most, for a claim that has room for so many. Each step goes past what the
/// ones before it in the same transaction have removed.
const MOST_DUE: usize = 10_000;

/// Where steps look.
pub(crate) struct Reach<'a> {
    /// The actions whose tasks are made ready when they are due, and how many of these; `None`: of all.
    tasks: Option<(&'a [i32], i32)>,
    starts: Starts,
    /// A mark for sealing has to be as old.
    patience: Duration,
}

impl<'a> Reach<'a> {
    /// Everywhere.
    pub(crate) fn all(patience: Duration) -> Self {
        Reach { tasks: None, starts: Starts::beginning(0), patience }
    }

    /// Where a claim of so many tasks of these actions looks. What it makes ready in a transaction that may stay open is kept from
    /// others: there it is no more than the claim has room for.
    fn of_claim(action_nos: &'a [i32], room: usize) -> Self {
        let least = if in_transaction_block() { 1 } else { STEP as usize };
        let tasks = Some((action_nos, room.clamp(least, MOST_DUE) as i32));
        Reach { tasks, starts: low_ends::starts(action_nos), patience: seal::SEAL_FOR_OTHERS_AFTER }
    }
}

/// One step of each kind that is due, for a claim that has room for so many tasks of these actions: earliest first, so that each call
/// brings what stands behind nearer, its own and that of others.
pub(crate) fn keep_up(due: &Due, action_nos: &[i32], room: usize, now: Time) -> Step {
    let reach = Reach::of_claim(action_nos, room);
    let mut all = Step { done: false, more: false };
    for kind in due.kinds() {
        unless_others_were_faster(|| {
            let step = step(kind, &reach, now);
            all = Step { done: all.done || step.done, more: all.more || step.more };
        });
    }
    all
}

/// Actions that have something due: from one to the next along the index, not by way of all actions.
static DUE_ACTIONS: Statement<Time, i32> = Statement::new(
    c"WITH RECURSIVE actions AS (
        (SELECT s.action_no FROM taskq.scheduled s ORDER BY s.action_no LIMIT 1)
        UNION ALL
        SELECT (SELECT s.action_no FROM taskq.scheduled s
                 WHERE s.action_no > a.action_no ORDER BY s.action_no LIMIT 1)
          FROM actions AS a WHERE a.action_no IS NOT NULL)
      SELECT a.action_no FROM actions AS a
       WHERE EXISTS (SELECT FROM taskq.scheduled s WHERE s.action_no = a.action_no AND s.due <= $1 OFFSET 0)",
);

/// A step of one kind. What other transactions hold is left to them.
pub(crate) fn step(kind: Kind, reach: &Reach, now: Time) -> Step {
    let until_done = |done| Step { done, more: done };
    match kind {
        Kind::Leases => elapsed::step(STEP as usize, reach.starts.lease, now),
        Kind::ByTime => by_time::step(STEP, &reach.starts.by_time, now),
        Kind::Schedules => until_done(fire_due(STEP, now)),
        Kind::DueTasks => match reach.tasks {
            Some((action_nos, bound)) => due::release(action_nos, reach.starts.scheduled.clone(), bound, now),
            None => release_all(now),
        },
        Kind::Signals => until_done(fold::some(STEP, now)),
        Kind::Parking => parking::step(now),
        Kind::Retention => retention::step(STEP as usize, reach.starts.settled, now),
        Kind::Tallies => {
            let (done, more) = tally::fold_some(STEP, now);
            // Sooner or later there is something to seal in any queue that works, so it does not count as done.
            let unsealed = seal::step(reach.patience);
            Step { done, more: more || unsealed }
        }
    }
}

fn release_all(now: Time) -> Step {
    let action_nos: Vec<i32> = DUE_ACTIONS.query(now);
    if action_nos.is_empty() {
        return Step { done: false, more: false };
    }
    due::release(&action_nos, vec![Time::BEGINNING; action_nos.len()], STEP, now)
}

/// Low ends of indexes; of `scheduled`, that of each action. `countdown` is empty most of the time.
static NEXT_OF_ALL: Statement<(Time, Time), Option<Time>> = Statement::new(
    c"WITH RECURSIVE actions AS (
        (SELECT s.action_no, s.due FROM taskq.scheduled s ORDER BY s.action_no, s.due LIMIT 1)
        UNION ALL
        SELECT n.action_no, n.due
          FROM actions AS a
         CROSS JOIN LATERAL (SELECT s.action_no, s.due FROM taskq.scheduled s
                              WHERE s.action_no > a.action_no ORDER BY s.action_no, s.due LIMIT 1) AS n)
      SELECT LEAST((SELECT l.deadline FROM taskq.lease l WHERE l.deadline <= $2 ORDER BY l.deadline LIMIT 1),
                   (SELECT pg_catalog.min(a.due) FROM actions AS a),
                   CASE WHEN EXISTS (SELECT FROM taskq.countdown) THEN $1 END)",
);

/// When something will be due if nothing is committed until then; retention, entries to be parked and tallies aside. Of deadlines,
/// only those before the worker looks anyway: further on there may be many dead entries, of tasks that came back in time.
pub(crate) fn next(now: Time) -> Option<Time> {
    let latest = now + guc::maintenance_interval();
    let due: Option<Time> = NEXT_OF_ALL.first((now, latest)).flatten();
    let by_time = next_after(Time::BEGINNING, &[Time::BEGINNING; KINDS_BY_TIME]);
    due.into_iter().chain(schedules::next_at()).chain(by_time).min()
}
