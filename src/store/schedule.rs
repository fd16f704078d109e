//! The table `schedule`: when which task is to be inserted.

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
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
