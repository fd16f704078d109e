//! The table `settled`: how tasks ended.

use pgrx::datum::Interval;

use crate::input::cut_status;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Statement, sql};
use crate::pg::table::{self, Index, Key, Look, table};
use crate::state::{Cause, Outcome};
use crate::store::ends::uncounted;
use crate::store::freed::Freed;
use crate::store::live_row::Live;
use crate::store::task::AtTheEnd;

table!(c"settled":
    TASK_NO: TaskNo,
    EXPIRES_AT: Time,
    SETTLED_AT: Time,
    GRANTED_AT: Option<Time>,
    TRIES: i32,
    FAILURES: i32,
    DEPENDENCIES: i32,
    SIGNALS: i32,
    ACTION_NO: i32,
    GROUPED: bool,
    CODE: i8,
    CAUSE: i8,
    ACTOR_ID: Option<String>,
    STATUS: Option<String>,
    RESULT: Option<JsonText>,
    LEADER_NO: Option<TaskNo>,
);

/// How the task ended of which `$s` is the row of `settled`, as SQL, for [`Outcome::from_stored`].
macro_rules! outcome {
    ($s:literal) => {
        concat!("CASE ", $s, ".cause WHEN 'k' THEN ", $s, ".cause ELSE ", $s, ".code END")
    };
}
pub(crate) use outcome;

static BY_EXPIRY: Index = Index::new(&TABLE, c"settled_expires_idx");

/// How a task ended.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    /// The number of the task.
    pub(crate) task_no: TaskNo,
    /// Completed, aborted or skipped.
    pub(crate) outcome: Outcome,
    /// What has ended it.
    pub(crate) cause: Cause,
    /// A text for people, as much as is kept of one.
    pub(crate) status: Option<String>,
    /// What the task leaves to its dependents.
    pub(crate) result: Option<JsonText>,
    /// When it was granted last; `None`: it was not in progress.
    pub(crate) granted_at: Option<Time>,
    /// The name of the worker that had it; `None`: it was not in progress.
    pub(crate) actor_id: Option<String>,
    /// Tries so far.
    pub(crate) tries: i32,
    /// How many of its dependencies have aborted.
    pub(crate) failures: i32,
    /// How many dependencies it has in all.
    pub(crate) dependencies: i32,
    /// How many dependencies had signalled when it ended.
    pub(crate) signals: i32,
    /// It held its merge key.
    pub(crate) keyed: bool,
    /// The task with the same merge key that ran for it, if it shares the end of one.
    pub(crate) leader: Option<TaskNo>,
}

impl Ending {
    /// The abort of a live task.
    pub(crate) fn abort(live: &Live, cause: Cause, status: Option<String>) -> Self {
        let outcome = if cause == Cause::Skipped { Outcome::Skipped } else { Outcome::Aborted };
        Ending::of(live, outcome, cause, status)
    }

    /// The end of a live task.
    pub(crate) fn of(live: &Live, outcome: Outcome, cause: Cause, status: Option<String>) -> Self {
        Ending {
            task_no: live.task_no,
            outcome,
            cause,
            status: cut_status(status),
            result: None,
            granted_at: live.granted_at,
            actor_id: live.actor_id.clone(),
            tries: live.tries,
            failures: live.failures,
            dependencies: live.dependencies,
            signals: live.signals(),
            keyed: live.keyed,
            leader: None,
        }
    }

    /// The end of a task that is not in progress, and that waits for nothing.
    pub(crate) fn of_freed(freed: &Freed, outcome: Outcome, cause: Cause, status: Option<String>) -> Self {
        Ending {
            task_no: freed.task_no,
            outcome,
            cause,
            status: cut_status(status),
            result: None,
            granted_at: None,
            actor_id: None,
            tries: freed.tries,
            failures: freed.failures,
            dependencies: freed.dependencies,
            signals: freed.dependencies,
            keyed: false,
            leader: None,
        }
    }
}

/// Writes how tasks ended, with until when each is kept.
pub(crate) fn insert<'a>(ends: impl Iterator<Item = (&'a Ending, &'a AtTheEnd, Time)>, now: Time) {
    table::insert(&TABLE, |into| {
        for (ending, task, expires_at) in ends {
            check_for_interrupts();
            into.row(|| {
                [
                    TASK_NO.to(ending.task_no),
                    EXPIRES_AT.to(expires_at),
                    SETTLED_AT.to(now),
                    GRANTED_AT.to(ending.granted_at),
                    TRIES.to(ending.tries),
                    FAILURES.to(ending.failures),
                    DEPENDENCIES.to(ending.dependencies),
                    SIGNALS.to(ending.signals),
                    ACTION_NO.to(task.action_no),
                    GROUPED.to(task.grouped),
                    CODE.to(ending.outcome.stored()),
                    CAUSE.to(ending.cause.stored()),
                    ACTOR_ID.to(ending.actor_id.as_deref()),
                    STATUS.to(ending.status.as_deref()),
                    RESULT.to(ending.result.clone()),
                    LEADER_NO.to(ending.leader),
                ]
            });
        }
    });
}

/// The first end of a retention from a time on that has passed.
pub(crate) fn first_expired(look: &Look, from: Time, now: Time) -> Option<Time> {
    look.first(&BY_EXPIRY, &[Key::at_least(1, from), Key::at_most(1, now)], |row| row.get(EXPIRES_AT))
}

/// What had settled before it was replaced is counted no more, either.
pub(crate) static KEEP_EPITAPHS: Statement<(&[TaskNo], Time, Interval)> = Statement::new(
    sql!(
        "WITH gone AS MATERIALIZED (
        SELECT s.task_no, s.settled_at, s.action_no, s.code, s.cause FROM taskq.settled s WHERE s.task_no = ANY ($1)),
      ",
        uncounted!("gone"),
        "
      UPDATE taskq.settled s SET expires_at = $2 OPERATOR(pg_catalog.+) $3, cause = 'r'
       WHERE s.task_no = ANY ($1)"
    ),
);

/// Removes how these tasks ended, and has them counted no more; returns how many dependencies each had, the
/// outcome, and whether it has a group.
pub(crate) static REMOVE: Statement<&[TaskNo], (TaskNo, i32, i8, bool)> = Statement::new(sql!(
    "WITH gone AS (
        DELETE FROM taskq.settled s WHERE s.task_no = ANY ($1)
        RETURNING s.task_no, s.dependencies, s.grouped, s.settled_at, s.action_no, s.code, s.cause),
      ",
    uncounted!("gone"),
    "
      SELECT g.task_no, g.dependencies, ",
    outcome!("g"),
    ", g.grouped FROM gone AS g"
));

/// They are kept until then.
pub(crate) static PUT_OFF: Statement<(&[TaskNo], Time)> =
    Statement::new(c"UPDATE taskq.settled s SET expires_at = $2 WHERE s.task_no = ANY ($1)");
