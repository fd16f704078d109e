//! `delete_tasks`: tasks go with their dependencies, and with blocked tasks that lose their last dependency by it
//! (suspended ones are freed, signals stay).

use std::collections::HashSet;

use pgrx::prelude::*;

use super::filter::{Filter, Filters, filtered, on_ends, on_tasks};
use crate::clock;
use crate::error::{Refusal, Result};
use crate::locks::{self, Idle, LockStrength, restartable};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, sql};
use crate::remove::delete_locked;
use crate::rights::{self, Doing};
use crate::settle::fold;
use crate::store::numbers;

filtered! {
    /// `taskq.delete_tasks(task_ids, actions, groups, status_like, causes, settled_since, settled_until, max_tasks) ->
    /// bigint`
    fn taskq_delete_tasks, delete
}

fn delete(filter: Filter) -> Result<i64> {
    if let Some(ids) = filter.only_ids()? {
        return restartable(|| delete_by_id(&ids, clock::now()));
    }
    filter.check(Doing::Change)?;
    let matching: Vec<(TaskNo, bool)> = MATCHING.query(filter.given());
    rights::check_found(Doing::Change, matching.iter().map(|(task_no, _)| *task_no))?;
    restartable(|| delete_matching(&matching, clock::now()))
}

/// Tasks for which no token is valid, and whether each is settled, in the order of their numbers.
static MATCHING: Statement<Filters, (TaskNo, bool)> = Statement::planned_each_time(
    sql!(
        "SELECT t.task_no, s.task_no IS NOT NULL
           FROM taskq.task t
           LEFT JOIN LATERAL (SELECT s.task_no, s.code, s.cause, s.settled_at, s.status FROM taskq.settled s
                               WHERE s.task_no = t.task_no OFFSET 0) AS s ON true
          WHERE ", on_tasks!(), "
            AND ($4 IS NULL OR CASE WHEN s.task_no IS NOT NULL THEN s.status
                                    ELSE (SELECT p.status FROM taskq.progress p WHERE p.task_no = t.task_no) END LIKE $4)
            AND ", on_ends!(), "
            AND NOT EXISTS (SELECT FROM taskq.run r WHERE r.task_no = t.task_no AND r.nonce <> 0 OFFSET 0)
          ORDER BY t.task_no
          LIMIT $8"
    ),
);

/// Deletes what a filter has found, except what has begun, come back to life, been replaced or gone since.
fn delete_matching(matching: &[(TaskNo, bool)], now: Time) -> Result<i64> {
    let task_nos: Vec<TaskNo> = matching.iter().map(|(task_no, _)| *task_no).collect();
    let mut rows = fold::locked(|| Ok(locks::lock(&task_nos, LockStrength::Update)), |rows| rows)?;
    let rest: Vec<TaskNo> = task_nos.iter().copied().filter(|n| !rows.contains_key(n)).collect();
    let ended = locks::hold_outcomes(&rest, LockStrength::Update);
    // What was replaced has left its end behind, for calls that wait for it, and is no task any more. This look is newer than
    // the locks, and takes away only.
    let there = numbers::ids(&task_nos);
    let going: Vec<TaskNo> = matching
        .iter()
        .filter(|(task_no, settled)| match rows.get(task_no) {
            Some(row) => !settled && !row.in_progress(),
            None => ended.contains_key(task_no),
        })
        .map(|(task_no, _)| *task_no)
        .filter(|task_no| there.contains_key(task_no))
        .collect();
    let kept: HashSet<TaskNo> = going.iter().copied().collect();
    rows.retain(|task_no, _| kept.contains(task_no));
    Ok(delete_locked(going, rows, now))
}

/// Deletes the tasks with these ids, and blocked tasks that are left without any dependency; see [`delete_locked`] for what stays.
/// The tasks asked for are locked in the global order, and one in progress is refused, before any is touched.
fn delete_by_id(ids: &[&str], now: Time) -> Result<i64> {
    let idle = Idle { ids: ids.to_vec(), refusal };
    rights::check_tasks(Doing::Change, numbers::by_id(ids).into_values())?;
    idle.look()?;
    let lock =
        || locks::lock_any(ids, std::slice::from_ref(&idle), LockStrength::Update, LockStrength::Update);
    let (tasks, rows, _) = fold::locked(lock, |(_, rows, _)| rows)?;
    rights::check_tasks(Doing::Change, tasks.values().copied())?;
    Ok(delete_locked(tasks.into_values().collect(), rows, now))
}

fn refusal(id: &str) -> Refusal {
    locks::held(id, "cannot be deleted", "Wait until it is returned, or cancel it first.")
}
