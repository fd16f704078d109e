//! `retry_tasks`: aborted tasks get another chance.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::{CHARARRAYOID, INT4OID, TEXTARRAYOID, TEXTOID, TIMESTAMPTZOID};
use pgrx::prelude::*;

use crate::error::{Refusal, Result, or_throw, required};
use crate::pg::clock::{self, Time};
use crate::pg::statement::{Statement, args};
use crate::revive::{Unrevivable, revive};
use crate::state::Cause;
use crate::store::numbers;
use crate::store::order::restartable;

/// `taskq.retry_tasks(task_ids, actions, groups, status_like, causes, settled_since, settled_until, max_tasks)
/// -> bigint`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_retry_tasks(
    task_ids: Option<Vec<Option<String>>>,
    actions: Option<Vec<Option<String>>>,
    groups: Option<Vec<Option<String>>>,
    status_like: Option<&str>,
    causes: Option<Vec<Option<String>>>,
    settled_since: Option<TimestampWithTimeZone>,
    settled_until: Option<TimestampWithTimeZone>,
    max_tasks: Option<i32>,
) -> i64 {
    or_throw((|| {
        let time = |time: Option<TimestampWithTimeZone>| time.map(|t| Time(t.into()));
        let causes = causes.map(stored_causes).transpose()?;
        let since = time(settled_since);
        let until = time(settled_until);
        if max_tasks.is_some_and(|max| max < 0) {
            let given = max_tasks.unwrap_or_default().to_string();
            return Err(Refusal::out_of_range("max_tasks", &given, "Ask for 0 tasks or more."));
        }
        retry(Filter { task_ids, actions, groups, status_like, causes, since, until, max_tasks })
    })())
}

/// Which aborted tasks are to come back; what is `None` does not filter.
struct Filter<'a> {
    task_ids: Option<Vec<Option<String>>>,
    actions: Option<Vec<Option<String>>>,
    groups: Option<Vec<Option<String>>>,
    status_like: Option<&'a str>,
    /// As `settled.cause` stores them.
    causes: Option<Vec<i8>>,
    since: Option<Time>,
    until: Option<Time>,
    max_tasks: Option<i32>,
}

impl Filter<'_> {
    /// Whether it asks for more of a task than its id.
    fn looks_at_tasks(&self) -> bool {
        let Filter { task_ids: _, actions, groups, status_like, causes, since, until, max_tasks: _ } = self;
        actions.is_some()
            || groups.is_some()
            || status_like.is_some()
            || causes.is_some()
            || since.is_some()
            || until.is_some()
    }
}

fn stored_causes(names: Vec<Option<String>>) -> Result<Vec<i8>> {
    names
        .into_iter()
        .map(|name| {
            let name = required("causes", name)?;
            match Cause::from_name(&name).filter(|cause| Cause::of_aborts().any(|known| known == *cause)) {
                Some(cause) => Ok(cause.stored()),
                None => {
                    let names: Vec<&str> = Cause::of_aborts().map(Cause::name).collect();
                    Err(Refusal::out_of_range("causes", &name, &format!("Use one of: {}.", names.join(", "))))
                }
            }
        })
        .collect()
}

/// Walks the settled tasks once: there is no index on how tasks ended, and an operator can wait. Those that
/// ended first come first.
static MATCHING: Statement = Statement::new(
    c"SELECT t.task_no
        FROM taskq.settled s
        JOIN taskq.task t ON t.task_no = s.task_no
        JOIN taskq.action a ON a.action_no = t.action_no
       WHERE s.code = 'a'
         AND ($1 IS NULL OR t.id = ANY ($1))
         AND ($2 IS NULL OR a.name = ANY ($2))
         AND ($3 IS NULL OR t.group_id = ANY ($3))
         AND ($4 IS NULL OR s.status LIKE $4)
         AND ($5 IS NULL OR s.cause = ANY ($5))
         AND ($6 IS NULL OR s.settled_at >= $6)
         AND ($7 IS NULL OR s.settled_at < $7)
       ORDER BY s.settled_at, s.task_no
       LIMIT $8",
    &[
        TEXTARRAYOID,
        TEXTARRAYOID,
        TEXTARRAYOID,
        TEXTOID,
        CHARARRAYOID,
        TIMESTAMPTZOID,
        TIMESTAMPTZOID,
        INT4OID,
    ],
);

/// Given nothing but ids, a task that cannot come back is a refusal; a filter passes it over.
fn retry(filter: Filter) -> Result<i64> {
    let now = clock::now();
    let has_filter = filter.looks_at_tasks();
    let Filter { task_ids, actions, groups, status_like, causes, since, until, max_tasks } = filter;
    match task_ids {
        None if !has_filter => Err(Refusal::null_argument("task_ids")),
        Some(ids) if !has_filter && max_tasks.is_none() => {
            let ids: Vec<&str> = ids.iter().flatten().map(String::as_str).collect();
            let task_nos: Vec<i64> = numbers::by_id(&ids).into_values().collect();
            restartable(|| revive(&task_nos, Unrevivable::Refuse, now))
        }
        task_ids => {
            let task_nos: Vec<i64> = MATCHING.query(
                args![task_ids, actions, groups, status_like, causes, since, until, max_tasks],
                |row| row.need(1),
            );
            restartable(|| revive(&task_nos, Unrevivable::Leave, now))
        }
    }
}
