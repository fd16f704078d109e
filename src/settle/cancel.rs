//! Cancelling.

use std::collections::HashMap;

use super::{Ending, settle};
use crate::clock;
use crate::number::TaskNo;
use crate::state::Cause;
use crate::store::live::{self, Live};

/// Aborts tasks whose live rows are locked; returns how many.
pub(crate) fn cancel_locked(rows: &HashMap<TaskNo, Live>, status: Option<String>) -> i64 {
    live::remove(rows.values());
    let status = status.unwrap_or_else(|| "cancelled".to_owned());
    let mut endings: Vec<Ending> =
        rows.values().map(|row| Ending::abort(row, Cause::Cancelled, Some(status.clone()))).collect();
    endings.sort_unstable_by_key(|ending| ending.task_no);
    settle(endings, clock::now());
    rows.len() as i64
}
