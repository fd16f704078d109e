//! The table `schedule`: when which task is to be inserted.

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::statement::Statement;
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
);

/// By next_at.
static BY_TIME: Index = Index::new(&TABLE, c"schedule_next_idx");

/// Whether one of them is due.
pub(crate) fn any_due(look: &Look, now: Time) -> bool {
    look.first(&BY_TIME, &[Key::at_most(1, now)], |_| ()).is_some()
}

/// Waits for whoever is changing the same schedule.
/// Name, cron, timezone, task, overlap, backfill, next_at, max_backfill.
pub(crate) static SET: Statement<(&str, &str, &str, JsonText, &str, &str, Time, i32), Time> = Statement::new(
    c"INSERT INTO taskq.schedule AS s (name, cron, timezone, task, overlap, backfill, next_at, max_backfill)
      VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
      ON CONFLICT (name) DO UPDATE
         SET cron = EXCLUDED.cron, timezone = EXCLUDED.timezone, task = EXCLUDED.task,
             overlap = EXCLUDED.overlap, backfill = EXCLUDED.backfill, max_backfill = EXCLUDED.max_backfill,
             next_at = CASE WHEN s.paused_next_at IS NULL THEN EXCLUDED.next_at ELSE 'infinity' END,
             paused_next_at = CASE WHEN s.paused_next_at IS NOT NULL THEN EXCLUDED.next_at END
      RETURNING s.next_at",
);

pub(crate) static REMOVE: Statement<&str> = Statement::new(c"DELETE FROM taskq.schedule s WHERE s.name = $1");

/// A paused schedule keeps its next time aside and is never due, so that whoever looks for what is due sees none.
pub(crate) static PAUSE: Statement<&str> = Statement::new(
    c"UPDATE taskq.schedule s SET paused_next_at = s.next_at, next_at = 'infinity'
       WHERE s.name = $1 AND s.paused_next_at IS NULL",
);

pub(crate) static RESUME: Statement<&str, Time> = Statement::new(
    c"UPDATE taskq.schedule s SET next_at = s.paused_next_at, paused_next_at = NULL
       WHERE s.name = $1 AND s.paused_next_at IS NOT NULL
      RETURNING s.next_at",
);

pub(crate) static ADVANCE: Statement<(&str, Time, Time, &str, &str)> = Statement::new(
    c"UPDATE taskq.schedule s
         SET next_at = $2, last_at = COALESCE($3, s.last_at), last_task_id = COALESCE($4, s.last_task_id),
             problem = $5
       WHERE s.name = $1",
);

pub(crate) static NOTE_RUN: Statement<(&str, Time, &str)> =
    Statement::new(c"UPDATE taskq.schedule s SET last_at = $2, last_task_id = $3 WHERE s.name = $1");
