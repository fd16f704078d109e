//! `retry_tasks`: aborted tasks get another chance.

use pgrx::prelude::*;

use super::filter::{Filter, Filters, filtered, on_ends, on_tasks};
use crate::clock;
use crate::error::Result;
use crate::locks::restartable;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Statement, sql};
use crate::revive::{Again, start_over};
use crate::rights::{self, Doing};
use crate::store::numbers;

filtered! {
    /// `taskq.retry_tasks(task_ids, actions, groups, status_like, causes, settled_since, settled_until, max_tasks)
    /// -> bigint`
    fn taskq_retry_tasks, retry
}

/// May walk all settled tasks: there is no index on how tasks ended. Those that ended first come first.
static MATCHING: Statement<Filters, TaskNo> = Statement::planned_each_time(sql!(
    "SELECT t.task_no
           FROM taskq.settled s
           JOIN taskq.task t ON t.task_no OPERATOR(taskq.===) s.task_no
          WHERE s.code = 'a'
            AND ",
    on_tasks!(),
    "
            AND ($4 IS NULL OR s.status LIKE $4)
            AND ",
    on_ends!(),
    "
          ORDER BY s.settled_at, s.task_no
          LIMIT $8"
));

/// Given nothing but ids, an aborted task that cannot come back is a refusal; otherwise it is passed over.
fn retry(filter: Filter) -> Result<i64> {
    let now = clock::now();
    if let Some(ids) = filter.only_ids()? {
        return restartable(|| retry_by_id(&ids, now));
    }
    filter.check(Doing::Change)?;
    let task_nos: Vec<TaskNo> = MATCHING.query(filter.given());
    rights::check_found(Doing::Change, task_nos.iter().copied())?;
    restartable(|| start_over(&task_nos, Again::RetryAll, now))
}

/// A task may be replaced while its row is waited for: then the id is another's, and that one is looked at as well.
fn retry_by_id(ids: &[&str], now: Time) -> Result<i64> {
    let mut found = numbers::by_id(ids);
    let mut revived = 0;
    loop {
        check_for_interrupts();
        let task_nos: Vec<TaskNo> = found.values().copied().collect();
        rights::check_tasks(Doing::Change, task_nos.iter().copied())?;
        revived += start_over(&task_nos, Again::Retry, now)?;
        let now_found = numbers::by_id(ids);
        if now_found == found {
            return Ok(revived);
        }
        found = now_found;
    }
}
