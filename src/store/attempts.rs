//! The history of tries: those that did not settle their task, those that were revoked, and those from before the task has started
//! over. The try that has settled a task is in `settled`.
//!
//! It is bounded: of each task the last [`TRIES_KEPT`] tries since it was inserted or has started over are kept, and as many from before
//! that until there are more than [`TRIES_KEPT`] new ones; of those that do not count, which are beside these, at most as many once more.
//! Deadlines that have passed since then, and tries since then that do not count, are counted even if their rows are gone:
//! the row that takes their place has their number.

use std::collections::HashMap;

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, sql};
use crate::store::live::Live;

/// How many tries of a task are kept, of those that count and of the others each. docs/reference gives the same number.
const TRIES_KEPT: i32 = 100;

/// The outcome of a try that does not count. Any number of them may have the same number.
pub(crate) const RELEASED: &str = "released";

/// What an insertion of tries takes: task, number of the try, beginning, actor, status; end, outcome.
type Ended = (
    &'static [TaskNo],
    &'static [i32],
    &'static [Time],
    &'static [&'static str],
    &'static [&'static str],
    Time,
    &'static str,
);
static RECORD: Statement<Ended> = Statement::new(
    c"INSERT INTO taskq.attempt (task_no, num_try, started_at, ended_at, outcome, actor_id, status, timeouts, releases)
      SELECT u.task_no, u.num_try, u.started_at, $6, $7, u.actor_id, u.status, ($7 = 'timeout')::integer,
             ($7 = 'released')::integer
        FROM unnest($1, $2, $3, $4, $5) AS u(task_no, num_try, started_at, actor_id, status)",
);

/// The same, and some of the earlier ones of each task `u` go, `o`: what is counted of them goes on with the new row. The history
/// of a task whose live row is ours is written by this transaction only.
macro_rules! record_and_drop {
    ($which:literal) => {
        Statement::new(sql!(
            "WITH gone AS (
               DELETE FROM taskq.attempt a
                WHERE a.ctid = ANY (ARRAY(
                        SELECT o.ctid
                          FROM unnest($1, $2) AS u(task_no, num_try)
                         CROSS JOIN LATERAL (SELECT o.ctid FROM taskq.attempt o
                                              WHERE o.task_no = u.task_no AND ",
            $which,
            " OFFSET $8) AS o))
               RETURNING a.task_no, CASE WHEN a.past THEN 0 ELSE a.timeouts END AS timeouts,
                         CASE WHEN a.past THEN 0 ELSE a.releases END AS releases),
             counted AS (SELECT g.task_no, pg_catalog.sum(g.timeouts)::integer AS timeouts,
                                pg_catalog.sum(g.releases)::integer AS releases
                           FROM gone AS g GROUP BY g.task_no)
             INSERT INTO taskq.attempt (task_no, num_try, started_at, ended_at, outcome, actor_id, status, timeouts, releases)
             SELECT u.task_no, u.num_try, u.started_at, $6, $7, u.actor_id, u.status,
                    ($7 = 'timeout')::integer + COALESCE((SELECT c.timeouts FROM counted AS c WHERE c.task_no = u.task_no), 0),
                    ($7 = 'released')::integer + COALESCE((SELECT c.releases FROM counted AS c WHERE c.task_no = u.task_no), 0)
               FROM unnest($1, $2, $3, $4, $5) AS u(task_no, num_try, started_at, actor_id, status)"
        ))
    };
}

/// Of tasks that have more tries than are kept: those that are past, and those that are so many tries ago ($9).
#[rustfmt::skip]
static RECORD_AND_DROP: Statement<(&[TaskNo], &[i32], &[Time], &[&str], &[&str], Time, &str, i32, i32)> =
    record_and_drop!("u.num_try > $9 AND (o.past OR o.num_try <= u.num_try - $9)");

/// Of those that do not count and are not past: all but the last $8.
#[rustfmt::skip]
static RECORD_AND_DROP_RELEASED: Statement<(&[TaskNo], &[i32], &[Time], &[&str], &[&str], Time, &str, i32)> =
    record_and_drop!("o.outcome = 'released' AND NOT o.past ORDER BY o.ended_at DESC, o.num_try DESC");

/// A try that ends: its row, what was said of it, and its outcome.
type Try<'a> = (&'a Live, Option<String>, &'static str);

/// Records tries that end now, those together that end in the same way.
pub(crate) fn record(mut ended: Vec<Try>, now: Time) {
    ended.sort_by_key(|(.., outcome)| *outcome);
    ended.chunk_by(|(.., one), (.., next)| one == next).for_each(|alike| record_alike(alike, now));
}

fn record_alike(ended: &[Try], now: Time) {
    let outcome = ended[0].2;
    let task_nos: Vec<TaskNo> = ended.iter().map(|(l, ..)| l.task_no).collect();
    let tries: Vec<i32> = ended.iter().map(|(l, ..)| l.tries).collect();
    let began: Vec<Option<Time>> = ended.iter().map(|(l, ..)| l.granted_at).collect();
    let actors: Vec<Option<&str>> = ended.iter().map(|(l, ..)| l.actor_id.as_deref()).collect();
    let said: Vec<Option<&str>> = ended.iter().map(|(_, status, _)| status.as_deref()).collect();
    if outcome == RELEASED {
        RECORD_AND_DROP_RELEASED.execute((
            task_nos,
            tries,
            began,
            actors,
            said,
            now,
            outcome,
            TRIES_KEPT - 1,
        ));
    } else if tries.iter().any(|tries| *tries > TRIES_KEPT) {
        RECORD_AND_DROP.execute((task_nos, tries, began, actors, said, now, outcome, 0, TRIES_KEPT));
    } else {
        RECORD.execute((task_nos, tries, began, actors, said, now, outcome));
    }
}

static TIMEOUTS: Statement<&[TaskNo], (TaskNo, i32)> = Statement::new(
    c"SELECT a.task_no, pg_catalog.sum(a.timeouts)::integer FROM taskq.attempt a
       WHERE a.task_no = ANY ($1) AND NOT a.past
       GROUP BY a.task_no",
);

/// How many deadlines of these tasks have passed since they were inserted, or last started over. Counted from the
/// history, so that it does not matter where a task has been meanwhile.
pub(crate) fn timeouts(task_nos: &[TaskNo]) -> HashMap<TaskNo, i32> {
    if task_nos.is_empty() {
        return HashMap::new();
    }
    TIMEOUTS.query(task_nos).into_iter().collect()
}

static MAKE_PAST: Statement<&[TaskNo]> =
    Statement::new(c"UPDATE taskq.attempt a SET past = true WHERE a.task_no = ANY ($1) AND NOT a.past");
static DROP_OLDEST: Statement<(&[TaskNo], i32)> = Statement::new(
    c"DELETE FROM taskq.attempt a
       WHERE a.ctid = ANY (ARRAY(
               SELECT o.ctid FROM unnest($1) AS u(task_no)
                CROSS JOIN LATERAL (SELECT o.ctid FROM taskq.attempt o WHERE o.task_no = u.task_no
                                     ORDER BY o.ended_at DESC, o.num_try DESC OFFSET $2) AS o))",
);
// OFFSET 0: else the planner may make a hash of the whole table, as PostgreSQL 18 does.
static KEEP_LAST: Statement<&[TaskNo]> = Statement::new(
    c"INSERT INTO taskq.attempt (task_no, num_try, started_at, ended_at, outcome, actor_id, status, past)
      SELECT s.task_no, s.tries, s.granted_at, s.settled_at,
             CASE WHEN s.code = 'c' THEN 'completed' WHEN s.cause = 't' THEN 'timeout'
                  WHEN s.cause = 'c' THEN 'cancelled' ELSE 'aborted' END,
             s.actor_id, s.status, true
        FROM taskq.settled s
       WHERE s.task_no = ANY ($1) AND s.granted_at IS NOT NULL
         AND NOT (s.cause = 'x' AND EXISTS (SELECT FROM taskq.attempt h
                                             WHERE h.task_no = s.task_no AND h.started_at = s.granted_at
                                               AND h.outcome = 'revoked' OFFSET 0))",
);

/// Makes the last tries of settled tasks history where it has not got them, before their `settled` rows go, and all of it
/// a thing of the past: what is counted is counted anew.
pub(crate) fn keep_last(task_nos: &[TaskNo]) {
    MAKE_PAST.execute(task_nos);
    DROP_OLDEST.execute((task_nos, TRIES_KEPT - 1));
    KEEP_LAST.execute(task_nos);
}

static FORGET: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.attempt a WHERE a.task_no = ANY ($1)");

/// Forgets the history of tasks that are gone or start anew.
pub(crate) fn forget(task_nos: &[TaskNo]) {
    FORGET.execute(task_nos);
}
