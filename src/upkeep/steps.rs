//! Upkeep by the background worker and by `taskq.maintain()`: step by step, each kind by itself.

use std::time::Duration;

use super::step::{STEP, Step};
use super::{by_time, due, elapsed, held_back, retention};
use crate::error::Result;
use crate::guc;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::schedules::{self, fire_due};
use crate::settle::fold;
use crate::store::by_time::{KINDS as KINDS_BY_TIME, next_after};
use crate::store::{seal, tally};
use crate::words::word;

/// The kinds of upkeep, in the order in which they are done.
pub(crate) const KINDS: [&str; 8] =
    ["schedules", "leases", "timers", "due tasks", "signals", "entries held back", "retention", "tallies"];

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

/// A step of one kind. What other transactions hold is left to them, as a rule. A mark for sealing has to be as old as `patience`.
pub(crate) fn step(kind: &str, patience: Duration, now: Time) -> Result<Step> {
    let until_done = |done| Step { done, more: done };
    Ok(match word("kind", Some(kind), &KINDS)? {
        "schedules" => until_done(fire_due(STEP, now)),
        "leases" => {
            let looked = elapsed::look_after_all(STEP as usize, now);
            Step { done: looked.ended || looked.removed, more: looked.goes_on() }
        }
        "timers" => by_time::step(STEP, &[Time::BEGINNING; KINDS_BY_TIME], false, now),
        "due tasks" => {
            let action_nos: Vec<i32> = DUE_ACTIONS.query(now);
            if action_nos.is_empty() {
                return Ok(until_done(false));
            }
            due::release(&action_nos, vec![Time::BEGINNING; action_nos.len()], STEP, now)
        }
        "signals" => until_done(fold::first(STEP, now)),
        "entries held back" => held_back::step(now),
        "retention" => {
            let swept = retention::sweep(STEP as usize, Time::BEGINNING, now);
            Step { done: swept.removed > 0, more: swept.more }
        }
        _ => {
            let (done, more) = tally::fold_some(STEP, now);
            // Sooner or later there is something to seal in any queue that works, so it does not count as done.
            let unsealed = seal::step(patience);
            Step { done, more: more || unsealed }
        }
    })
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

/// When something will be due if nothing is committed until then; retention, entries held back and tallies aside. Of deadlines,
/// only those before the worker looks anyway: further on there may be many dead entries, of tasks that came back in time.
pub(crate) fn next(now: Time) -> Option<Time> {
    let latest = now + guc::maintenance_interval();
    let due: Option<Time> = NEXT_OF_ALL.first((now, latest)).flatten();
    let by_time = next_after(Time::BEGINNING, &[Time::BEGINNING; KINDS_BY_TIME]);
    due.into_iter().chain(schedules::next_at()).chain(by_time).min()
}
