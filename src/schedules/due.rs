//! Which schedules are due, and when the next one is.

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::statement::{Statement, record};

record! {
    /// A schedule that is due.
    pub(super) struct Due {
        /// The name of the schedule.
        pub(super) name: String,
        /// Its cron expression.
        pub(super) cron: String,
        /// The time zone by whose clock the expression goes.
        pub(super) timezone: String,
        /// The task of a run, as for `insert_tasks`, without an id.
        pub(super) task: JsonText,
        /// What happens while the run before has not settled: `skip`, `queue` or `replace`.
        pub(super) overlap: String,
        /// Which of several missed runs are inserted: `one`, `none` or `all`.
        pub(super) backfill: String,
        /// With `all`: how many missed runs are inserted at most; `None`: each.
        pub(super) max_backfill: Option<i32>,
        /// The time of the first run that is due.
        pub(super) next_at: Time,
        /// The task of the last run that was inserted; `None`: there was none yet.
        pub(super) last_task_id: Option<String>,
    }
}

/// Those behind a time and name, or of these the one of a name. A schedule that another transaction has
/// locked is passed over.
pub(super) static DUE: Statement<(Time, i32, Time, &str, &str), Due> = Statement::new(
    c"SELECT s.name, s.cron, s.timezone, s.task, s.overlap, s.backfill, s.max_backfill, s.next_at, s.last_task_id
        FROM taskq.schedule s
       WHERE s.next_at <= $1 AND (s.next_at, s.name) > ($3, $4) AND ($5 IS NULL OR s.name = $5)
       ORDER BY s.next_at, s.name LIMIT $2 FOR UPDATE OF s SKIP LOCKED",
);

static NEXT_RUN: Statement<(), Time> =
    Statement::new(c"SELECT s.next_at FROM taskq.schedule s ORDER BY s.next_at LIMIT 1");

static NEXT_AFTER: Statement<Time, Time> =
    Statement::new(c"SELECT s.next_at FROM taskq.schedule s WHERE s.next_at > $1 ORDER BY s.next_at LIMIT 1");

/// When the next run of any schedule is due.
pub(crate) fn next_at() -> Option<Time> {
    NEXT_RUN.first(())
}

/// The same of those that are due after a time.
pub(crate) fn next_after(time: Time) -> Option<Time> {
    NEXT_AFTER.first(time)
}
