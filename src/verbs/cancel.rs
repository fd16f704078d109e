//! `cancel_tasks`: the end of tasks that nobody wants any more.

use std::collections::HashMap;

use pgrx::prelude::*;

use crate::error::{Result, or_throw, required};
use crate::pg::clock;
use crate::settle::{Ending, settle};
use crate::state::Cause;
use crate::store::live::{self, Firmness, Live};
use crate::store::order::restartable;

/// `taskq.cancel_tasks(task_ids, status) -> bigint`
#[pg_extern(sql = "")]
fn taskq_cancel_tasks(task_ids: Option<Vec<Option<String>>>, status: Option<String>) -> i64 {
    or_throw(cancel(task_ids, status))
}

/// Locks the tasks in the global order, waiting for whoever holds one; a token of a task in progress is
/// good for nothing from then on.
fn cancel(task_ids: Option<Vec<Option<String>>>, status: Option<String>) -> Result<i64> {
    let task_ids = required("task_ids", task_ids)?;
    let ids: Vec<&str> = task_ids.iter().flatten().map(String::as_str).collect();
    restartable(|| {
        let (_, rows) = live::lock_by_id(&ids, Firmness::Change);
        Ok(cancel_locked(&rows, status.clone()))
    })
}

/// Aborts tasks whose live rows are locked; returns how many.
pub(crate) fn cancel_locked(rows: &HashMap<i64, Live>, status: Option<String>) -> i64 {
    live::remove(rows.values());
    let status = status.unwrap_or_else(|| "cancelled".to_owned());
    let mut endings: Vec<Ending> =
        rows.values().map(|row| Ending::abort(row, Cause::Cancelled, Some(status.clone()))).collect();
    endings.sort_unstable_by_key(|ending| ending.task_no);
    settle(endings, clock::now());
    rows.len() as i64
}
