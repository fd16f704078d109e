//! Removing live rows.

use super::row::{Live, Place};
use crate::pg::statement::Statement;
use crate::store::lease;
use crate::store::slot;
use crate::wake;

static REMOVE_RUN: Statement<&[i64]> = Statement::new(c"DELETE FROM taskq.run r WHERE r.task_no = ANY ($1)");
static REMOVE_BLOCKED: Statement<&[i64]> =
    Statement::new(c"DELETE FROM taskq.blocked b WHERE b.task_no = ANY ($1)");
static REMOVE_SCHEDULED: Statement<&[i64]> =
    Statement::new(c"DELETE FROM taskq.scheduled s WHERE s.task_no = ANY ($1)");
static REMOVE_PARKED: Statement<&[i64]> =
    Statement::new(c"DELETE FROM taskq.parked p WHERE p.task_no = ANY ($1)");
static REMOVE_SIGNALS: Statement<&[i64]> =
    Statement::new(c"DELETE FROM taskq.signal s WHERE s.run_no = ANY ($1)");

/// Removes live rows that this transaction has locked for a change.
pub(crate) fn remove<'a>(rows: impl IntoIterator<Item = &'a Live>) {
    let (mut run, mut blocked, mut scheduled) = (Vec::new(), Vec::new(), Vec::new());
    let mut parked = Vec::new();
    let mut seated = Vec::new();
    let mut performed = Vec::new();
    for row in rows {
        if row.limited {
            seated.push(row.task_no);
        }
        match row.place {
            Place::Run { .. } => {
                run.push(row.task_no);
                performed.push(row);
                wake::gone(row.task_no);
            }
            Place::Blocked { .. } => blocked.push(row.task_no),
            Place::Parked => parked.push(row.task_no),
            Place::Scheduled { .. } => scheduled.push(row.task_no),
        }
    }
    for (statement, task_nos) in [
        (&REMOVE_RUN, &run),
        (&REMOVE_BLOCKED, &blocked),
        (&REMOVE_SIGNALS, &blocked),
        (&REMOVE_SCHEDULED, &scheduled),
        (&REMOVE_PARKED, &parked),
    ] {
        if !task_nos.is_empty() {
            statement.execute(task_nos.as_slice());
        }
    }
    slot::release(&seated);
    lease::leave_removed(performed);
}
