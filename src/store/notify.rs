//! Postgres notifications that tasks of an action are ready.

use std::collections::BTreeSet;

use pgrx::pg_sys::INT4ARRAYOID;

use crate::pg::statement::{Statement, args};

static NOTIFY: Statement = Statement::new(
    c"SELECT pg_catalog.pg_notify(taskq.action_channel(s.name),
                                  pg_catalog.json_build_object('action', s.name)::text) IS NULL
        FROM taskq.action a
        JOIN taskq.action_setting s ON s.name = a.name
       WHERE a.action_no = ANY ($1) AND s.notify",
    &[INT4ARRAYOID],
);

/// Notifies the listeners of those of the actions that are set to `notify`: tasks of them are ready.
/// Postgres sends equal notifications of a transaction once.
pub(crate) fn notify_ready(action_nos: &BTreeSet<i32>) {
    NOTIFY.execute(args![action_nos.iter().copied().collect::<Vec<_>>()]);
}
