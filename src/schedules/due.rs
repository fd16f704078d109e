//! Which schedules are due, and when the next one is.

use super::cron::Calendar;
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::statement::{Statement, record};

record! {
    /// A schedule that is due, as it is or as it was when these runs became due.
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
        /// Until when it was so.
        pub(super) until: Option<Time>,
        /// The cron expression of what came then.
        pub(super) then_cron: String,
        /// The time zone of what came then.
        pub(super) then_timezone: String,
        /// From when on that has runs; `None`: the schedule is what it was.
        pub(super) then_from: Option<Time>,
    }
}

impl Due {
    /// Its first time by what came then.
    pub(super) fn next_of_what_came_then(&self) -> Time {
        let calendar = Calendar::parse(&self.then_cron, &self.then_timezone).ok();
        calendar
            .zip(self.then_from)
            .and_then(|(calendar, from)| calendar.after(from))
            .unwrap_or(Time::INFINITY)
    }
}

/// Those behind a time and name, or of these the one of a name. A schedule that another transaction has
/// locked is passed over.
pub(super) static DUE: Statement<(Time, i32, Time, &str, &str), Due> = Statement::new(
    c"SELECT s.name, COALESCE(f.cron, s.cron), COALESCE(f.timezone, s.timezone), COALESCE(f.task, s.task),
             COALESCE(f.overlap, s.overlap), COALESCE(f.backfill, s.backfill),
             CASE WHEN s.former IS NULL THEN s.max_backfill ELSE f.max_backfill END,
             s.next_at, s.last_task_id, f.until, COALESCE(s.former #>> '{1,cron}', s.cron),
             COALESCE(s.former #>> '{1,timezone}', s.timezone), f.then_from
        FROM taskq.schedule s
        LEFT JOIN LATERAL pg_catalog.jsonb_to_record(s.former -> 0)
                  AS f(cron text, timezone text, task jsonb, overlap text, backfill text, max_backfill integer,
                       until timestamptz, then_from timestamptz) ON true
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
