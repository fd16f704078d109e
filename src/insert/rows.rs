//! The `task` rows of new tasks.

use pgrx::datum::Interval;

use super::NewTask;
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::statement::{Statement, sparse};
use crate::store::numbers;

/// The columns of the tasks, in the order of $1 to $17, when they are inserted, and $19 to $22.
#[rustfmt::skip]
type Tasks = (
    &'static [i64], &'static [i32], &'static [i32], &'static [i32], // number, action, priority, max_tries
    &'static [bool], &'static [bool], &'static [Time], // spontaneous, post_result, not_before
    &'static [Interval], &'static [Interval], &'static [JsonText], // max_duration, retention, backoff
    &'static [&'static str], &'static [&'static str], &'static [&'static str], // id, group, body
    &'static [JsonText], &'static [&'static str], &'static [&'static str], // metadata, workgroup, merge_key
    &'static [bool], Time, &'static [&'static str], &'static [Time], // seed, now, unique_key, unique_until
    &'static [i16], &'static [Interval], // unique_states, retention_aborted
);

/// Columns that no task of the call uses come as empty arrays, see [`sparse`].
///
/// An id that exists, or that another transaction has inserted and then commits, is passed over: the
/// unique index makes us wait for that transaction's end.
static INSERT: Statement<Tasks> = Statement::new(
    c"INSERT INTO taskq.task (task_no, action_no, priority, max_tries, spontaneous, post_result, inserted_at,
                              not_before, max_duration, retention, backoff, id, group_id, body, metadata, workgroup,
                              merge_key, seed, unique_key, unique_until, unique_states,
                              retention_aborted)
      SELECT u.task_no, u.action_no, COALESCE(u.priority, 0), u.max_tries, COALESCE(u.spontaneous, false),
             COALESCE(u.post_result, false), $18, u.not_before,
             u.max_duration, u.retention, u.backoff, u.id, u.group_id, u.body, u.metadata,
             u.workgroup, u.merge_key, COALESCE(u.seed, false), u.unique_key, u.unique_until, u.unique_states,
             u.retention_aborted
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
                    $15, $16, $17, $19, $20, $21, $22)
             AS u(task_no, action_no, priority, max_tries, spontaneous, post_result, not_before,
                  max_duration, retention, backoff, id, group_id, body, metadata,
                  workgroup, merge_key, seed, unique_key, unique_until, unique_states, retention_aborted)
      ON CONFLICT (id) DO NOTHING",
);

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
    let inserted = INSERT.execute((
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
