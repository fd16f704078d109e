//! `cancel_tasks`: the end of tasks that are not wanted any more.

use pgrx::prelude::*;

use super::filter::{Filter, check_max_tasks, on_tasks};
use crate::error::Result;
use crate::locks::{self, LockStrength, restartable};
use crate::number::TaskNo;
use crate::pg::statement::{Statement, sql};
use crate::rights::{self, Doing};
use crate::settle::{cancel_locked, fold};

/// `taskq.cancel_tasks(task_ids, status, actions, groups, status_like, max_tasks) -> bigint`
#[pg_extern(sql = "")]
fn taskq_cancel_tasks(
    task_ids: Option<Vec<Option<String>>>,
    status: Option<String>,
    actions: Option<Vec<Option<String>>>,
    groups: Option<Vec<Option<String>>>,
    status_like: Option<&str>,
    max_tasks: Option<i32>,
) -> i64 {
    rights::for_caller(|| {
        let max_tasks = check_max_tasks(max_tasks)?;
        cancel(Filter { task_ids, actions, groups, status_like, max_tasks, ..Filter::default() }, status)
    })
}

/// Reads what is not settled; what matches comes in the order of the tasks' numbers.
static MATCHING: Statement<(&[&str], &[&str], &[&str], &str, i32), TaskNo> =
    Statement::planned_each_time(sql!(
        "SELECT t.task_no
           FROM (SELECT r.task_no FROM taskq.run r
                 UNION ALL SELECT b.task_no FROM taskq.blocked b
                 UNION ALL SELECT d.task_no FROM taskq.scheduled d
                 UNION ALL SELECT k.task_no FROM taskq.parked k) AS l
          CROSS JOIN LATERAL (SELECT t.task_no, t.id, t.action_no, t.group_id FROM taskq.task t
                               WHERE t.task_no = l.task_no OFFSET 0) AS t
          WHERE ",
        on_tasks!(),
        "
            AND ($4 IS NULL OR (SELECT p.status FROM taskq.progress p WHERE p.task_no = t.task_no) LIKE $4)
          ORDER BY t.task_no
          LIMIT $5"
    ));

/// Locks the tasks in the global order; waits for transactions that hold one. The token of a task that it cancels in progress
/// is void.
fn cancel(filter: Filter, status: Option<String>) -> Result<i64> {
    if let Some(ids) = filter.only_ids()? {
        // Also of those that are settled, and before any lock is waited for.
        rights::check_named(Doing::Change, ids.iter().copied())?;
        return restartable(|| {
            let (_, rows) =
                fold::locked(|| Ok(locks::lock_by_id(&ids, LockStrength::Update)), |(_, rows)| rows)?;
            rights::check_tasks(Doing::Change, rows.keys().copied())?;
            Ok(cancel_locked(&rows, status.clone()))
        });
    }
    filter.check(Doing::Change)?;
    let Filter { task_ids, actions, groups, status_like, max_tasks, .. } = filter;
    let task_nos: Vec<TaskNo> = MATCHING.query((task_ids, actions, groups, status_like, max_tasks));
    rights::check_found(Doing::Change, task_nos.iter().copied())?;
    restartable(|| {
        let rows = fold::locked(|| Ok(locks::lock(&task_nos, LockStrength::Update)), |rows| rows)?;
        Ok(cancel_locked(&rows, status.clone()))
    })
}
