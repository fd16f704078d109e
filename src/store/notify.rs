//! Postgres notifications that tasks of an action are ready.

use std::collections::BTreeSet;

use crate::pg::statement::Statement;

static NOTIFY: Statement<&[i32]> = Statement::new(
    c"SELECT pg_catalog.pg_notify(taskq.action_channel(s.name),
                                  pg_catalog.json_build_object('action', s.name)::text) IS NULL
        FROM taskq.action a
        JOIN taskq.action_setting s ON s.name = a.name
       WHERE a.action_no = ANY ($1) AND s.notify",
);

/// Notifies the listeners of those of the actions that are set to `notify`: tasks of them are ready.
/// Postgres sends equal notifications of a transaction once.
pub(crate) fn notify_ready(action_nos: &BTreeSet<i32>) {
    NOTIFY.execute(action_nos.iter().copied().collect::<Vec<_>>());
}
