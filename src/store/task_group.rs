//! The table `task_group`: groups that were paused, or for which something is set.

use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::pg::table::{Index, Key, Look, table};

table!(c"task_group":
    GROUP_ID: String,
    PAUSED: bool,
    MAX_CONCURRENCY: Option<i32>,
    WEIGHT: Option<i32>,
    STOPPED_AT: Option<Time>,
);

static BY_ID: Index = Index::new(&TABLE, c"task_group_pkey");

/// Whether the group has a limit of its own.
pub(crate) fn has_limit(look: &Look, group: &str) -> bool {
    look.first(&BY_ID, &[Key::eq(1, group)], |row| row.get(MAX_CONCURRENCY).is_some()) == Some(true)
}

/// One row per group, whatever the number of its tasks. Waits for transactions that have the row locked: claims that park
/// tasks under the group hold it FOR SHARE until they end.
pub(crate) static SET_PAUSED: Statement<(&str, bool)> = Statement::new(
    c"INSERT INTO taskq.task_group AS g (group_id, paused) VALUES ($1, $2)
      ON CONFLICT (group_id) DO UPDATE SET paused = EXCLUDED.paused WHERE g.paused <> EXCLUDED.paused",
);

/// What was set for the group goes with it.
pub(crate) static REMOVE: Statement<&str> =
    Statement::new(c"DELETE FROM taskq.task_group g WHERE g.group_id = $1");

/// The row is changed first, so that a transaction that sets the same group comes after this call.
pub(crate) static SET: Statement<(&str, i32, i32, &[&str])> = Statement::new(
    c"INSERT INTO taskq.task_group AS g (group_id, max_concurrency, weight) VALUES ($1, $2, $3)
      ON CONFLICT (group_id) DO UPDATE
         SET max_concurrency = COALESCE($2, CASE WHEN 'max_concurrency' = ANY ($4) THEN NULL
                                                 ELSE g.max_concurrency END),
             weight = COALESCE($3, CASE WHEN 'weight' = ANY ($4) THEN NULL ELSE g.weight END)",
);

/// Notes since when none of the tasks of the group is granted, or that it is not so; of a row that is this transaction's, after each
/// change that may make it so or end it.
pub(crate) static NOTE_STOP: Statement<(&str, Time)> = Statement::new(
    c"UPDATE taskq.task_group g SET stopped_at = CASE WHEN g.stopped_at IS NULL THEN $2 END
       WHERE g.group_id = $1 AND (g.stopped_at IS NULL) = (g.paused OR g.max_concurrency IS NOT DISTINCT FROM 0)",
);
