//! The `task` rows of new tasks.

use super::NewTask;
use crate::pg::clock::Time;
use crate::pg::statement::sparse;
use crate::store::numbers;
use crate::store::task;

/// The end of a unique task's period, which begins when it may first be owned.
fn until(task: &NewTask, now: Time) -> Option<Time> {
    let period = task.spec.unique.as_ref()?.period?;
    Some(task.spec.not_before.map_or(now, |time| time.max(now)).plus(period))
}

/// Inserts the rows that are not there yet and returns the ids that belong to other tasks, in the order
/// of the call.
///
/// In the order of ids: two calls that insert the same ids wait for each other in one direction only.
pub(super) fn insert(in_call_order: &[&NewTask], now: Time) -> Vec<String> {
    let mut tasks = in_call_order.to_vec();
    tasks.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let inserted = task::INSERT.execute((
        tasks.iter().map(|t| t.task_no).collect::<Vec<_>>(),
        tasks.iter().map(|t| t.action_no).collect::<Vec<_>>(),
        sparse(tasks.iter().map(|t| Some(t.spec.priority).filter(|priority| *priority != 0))),
        sparse(tasks.iter().map(|t| t.spec.max_tries)),
        sparse(tasks.iter().map(|t| t.spec.spontaneous.then_some(true))),
        sparse(tasks.iter().map(|t| t.spec.post_result.then_some(true))),
        sparse(tasks.iter().map(|t| t.spec.not_before)),
        sparse(tasks.iter().map(|t| t.spec.max_duration)),
        sparse(tasks.iter().map(|t| t.spec.retention)),
        sparse(tasks.iter().map(|t| t.spec.backoff.clone())),
        tasks.iter().map(|t| t.id.as_str()).collect::<Vec<_>>(),
        sparse(tasks.iter().map(|t| t.spec.group.as_deref())),
        sparse(tasks.iter().map(|t| t.spec.body.as_deref())),
        sparse(tasks.iter().map(|t| t.spec.metadata.clone())),
        sparse(tasks.iter().map(|t| t.spec.workgroup.as_deref())),
        sparse(tasks.iter().map(|t| t.spec.merge_key.as_deref())),
        sparse(tasks.iter().map(|t| t.spec.seed.then_some(true))),
        now,
        sparse(tasks.iter().map(|t| t.spec.unique.as_ref().map(|unique| unique.key.as_str()))),
        sparse(tasks.iter().map(|t| until(t, now))),
        sparse(tasks.iter().map(|t| t.spec.unique.as_ref().map(|unique| unique.states))),
        sparse(tasks.iter().map(|t| t.spec.retention_aborted)),
    ));
    if inserted as usize == tasks.len() {
        return Vec::new();
    }
    let ids: Vec<&str> = tasks.iter().map(|t| t.id.as_str()).collect();
    let stored = numbers::by_id(&ids);
    in_call_order.iter().filter(|t| stored.get(&t.id) != Some(&t.task_no)).map(|t| t.id.clone()).collect()
}
