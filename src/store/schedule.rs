//! The table `schedule`: when which task is to be inserted.

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::statement::{Statement, record};
use crate::pg::table::{Index, Key, Look, table};

table!(c"schedule":
    NAME: String,
    CRON: String,
    TIMEZONE: String,
    TASK: JsonText,
    OVERLAP: String,
    BACKFILL: String,
    NEXT_AT: Time,
    LAST_AT: Option<Time>,
    LAST_TASK_ID: Option<String>,
    PROBLEM: Option<String>,
    MAX_BACKFILL: Option<i32>,
    PAUSED_NEXT_AT: Option<Time>,
    PAUSED_AT: Option<Time>,
);

/// By next_at.
static BY_TIME: Index = Index::new(&TABLE, c"schedule_next_idx");

/// Whether one of them is due.
pub(crate) fn any_due(look: &Look, now: Time) -> bool {
    look.first(&BY_TIME, &[Key::at_most(1, now)], |_| ()).is_some()
}

record! {
    /// A schedule that is about to be set anew.
    pub(crate) struct Before {
        /// The cron expression so far.
        pub(crate) cron: String,
        /// The time zone by whose clock that goes.
        pub(crate) timezone: String,
        /// When it is due next; of one that is paused, when it would be.
        pub(crate) next_at: Time,
        /// Whether it is paused.
        pub(crate) is_paused: bool,
    }
}

/// Waits for a transaction that is changing or running it.
pub(crate) static BEFORE: Statement<&str, Before> = Statement::new(
    c"SELECT s.cron, s.timezone, COALESCE(s.paused_next_at, s.next_at), s.paused_next_at IS NOT NULL
        FROM taskq.schedule s WHERE s.name = $1 FOR UPDATE",
);

/// Name, cron, timezone, task, overlap, backfill, max_backfill, next_at. No row: there is one by now.
pub(crate) static INSERT: Statement<(&str, &str, &str, JsonText, &str, &str, i32, Time), bool> =
    Statement::new(
        c"INSERT INTO taskq.schedule (name, cron, timezone, task, overlap, backfill, max_backfill, next_at)
      VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
      ON CONFLICT (name) DO NOTHING RETURNING true",
    );

/// The same. One that is paused stays so.
pub(crate) static CHANGE: Statement<(&str, &str, &str, JsonText, &str, &str, i32, Time)> = Statement::new(
    c"UPDATE taskq.schedule s
             SET cron = $2, timezone = $3, task = $4, overlap = $5, backfill = $6, max_backfill = $7,
                 next_at = CASE WHEN s.paused_next_at IS NULL THEN $8 ELSE 'infinity' END,
                 paused_next_at = CASE WHEN s.paused_next_at IS NOT NULL THEN $8 END
           WHERE s.name = $1",
);

/// Removes the schedule.
pub(crate) static REMOVE: Statement<&str> = Statement::new(c"DELETE FROM taskq.schedule s WHERE s.name = $1");

/// A paused schedule keeps its next time in another column and is never due, so that upkeep does not find it.
pub(crate) static PAUSE: Statement<(&str, Time)> = Statement::new(
    c"UPDATE taskq.schedule s SET paused_next_at = s.next_at, next_at = 'infinity', paused_at = $2
       WHERE s.name = $1 AND s.paused_next_at IS NULL",
);

/// Ends the pause of a schedule; returns when it runs next. No row: it is not paused.
pub(crate) static RESUME: Statement<&str, Time> = Statement::new(
    c"UPDATE taskq.schedule s SET next_at = s.paused_next_at, paused_next_at = NULL, paused_at = NULL
       WHERE s.name = $1 AND s.paused_next_at IS NOT NULL
      RETURNING s.next_at",
);

/// Name, the next time, then time and task of the last run if there was one, and why one could not be inserted.
pub(crate) static ADVANCE: Statement<(&str, Time, Time, &str, &str)> = Statement::new(
    c"UPDATE taskq.schedule s
         SET next_at = $2, last_at = COALESCE($3, s.last_at), last_task_id = COALESCE($4, s.last_task_id),
             problem = $5
       WHERE s.name = $1",
);

/// Notes a run that was asked for, with its time, its task, and what is wrong with it if anything is. When the next is due stays as it is.
pub(crate) static NOTE_RUN: Statement<(&str, Time, &str, &str)> = Statement::new(
    c"UPDATE taskq.schedule s SET last_at = $2, last_task_id = $3, problem = COALESCE($4, s.problem) WHERE s.name = $1",
);
