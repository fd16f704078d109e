//! `retry_tasks`: aborted tasks get another chance.

use pgrx::pg_sys::{TEXTARRAYOID, TEXTOID};
use pgrx::prelude::*;

use crate::error::{Refusal, Result, or_throw};
use crate::pg::clock;
use crate::pg::statement::{Statement, args};
use crate::revive::{Unrevivable, revive};
use crate::store::numbers;
use crate::store::order::restartable;

/// `taskq.retry_tasks(task_ids, actions, groups, status_like) -> bigint`
#[pg_extern(sql = "")]
fn taskq_retry_tasks(
    task_ids: Option<Vec<Option<String>>>,
    actions: Option<Vec<Option<String>>>,
    groups: Option<Vec<Option<String>>>,
    status_like: Option<&str>,
) -> i64 {
    or_throw(retry(task_ids, actions, groups, status_like))
}

/// Walks the settled tasks once: there is no index on how tasks ended, and an operator can wait.
static MATCHING: Statement = Statement::new(
    c"SELECT t.task_no
        FROM taskq.settled s
        JOIN taskq.task t ON t.task_no = s.task_no
        JOIN taskq.action a ON a.action_no = t.action_no
       WHERE s.code = 'a'
         AND ($1 IS NULL OR t.id = ANY ($1))
         AND ($2 IS NULL OR a.name = ANY ($2))
         AND ($3 IS NULL OR t.group_id = ANY ($3))
         AND ($4 IS NULL OR s.status LIKE $4)",
    &[TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTOID],
);

/// Given nothing but ids, a task that cannot come back is a refusal; a filter passes it over.
fn retry(
    task_ids: Option<Vec<Option<String>>>,
    actions: Option<Vec<Option<String>>>,
    groups: Option<Vec<Option<String>>>,
    status_like: Option<&str>,
) -> Result<i64> {
    let now = clock::now();
    match (&task_ids, &actions, &groups, status_like) {
        (None, None, None, None) => Err(Refusal::null_argument("task_ids")),
        (Some(ids), None, None, None) => {
            let ids: Vec<&str> = ids.iter().flatten().map(String::as_str).collect();
            let task_nos: Vec<i64> = numbers::by_id(&ids).into_values().collect();
            restartable(|| revive(&task_nos, Unrevivable::Refuse, now))
        }
        _ => {
            let task_nos: Vec<i64> =
                MATCHING.query(args![task_ids, actions, groups, status_like], |row| row.need(1));
            restartable(|| revive(&task_nos, Unrevivable::Leave, now))
        }
    }
}
