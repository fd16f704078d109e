//! The `task` rows of new tasks.

use super::new::NewTask;
use crate::locks::{self, Rank};
use crate::pg::clock::Time;
use crate::store::task;

/// Inserts the rows and returns the elements whose ids belong to other tasks, by their places in the call.
///
/// The rows are inserted in the order of ids: two calls that insert the same ids wait for each other in one direction only.
pub(super) fn insert(in_call_order: &[&NewTask], now: Time) -> Vec<usize> {
    if in_call_order.is_empty() {
        return Vec::new();
    }
    let mut tasks = in_call_order.to_vec();
    tasks.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let rows = tasks.iter().map(|t| task::New {
        task_no: t.task_no,
        action_no: t.action_no,
        id: &t.id,
        id_is_new: t.id_is_new,
        spec: &t.spec,
    });
    let refused = task::insert(rows, now);
    locks::holds(Rank::Ids);
    refused.into_iter().map(|at| tasks[at].element).collect()
}
