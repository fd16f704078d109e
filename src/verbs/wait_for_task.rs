//! `wait_for_task`: sleeping until a task has ended.

use pgrx::datum::Interval;
use pgrx::prelude::*;

use super::waiter::Waiter;
use crate::error::{Refusal, Result, required};
use crate::locks::tables;
use crate::number::TaskNo;
use crate::pg::arg::Arg;
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::rows::{Columns, Rows};
use crate::pg::session;
use crate::pg::statement::Statement;
use crate::pg::subtransaction;
use crate::pg::throw::notice;
use crate::rights::{self, Doing};
use crate::state::Outcome;
use crate::upkeep::{self, Next};
use crate::wake;

/// `taskq.wait_for_task(task_id, timeout) -> TABLE (…)`
#[pg_extern(sql = "")]
fn taskq_wait_for_task(task_id: Option<&str>, timeout: Option<Interval>) -> Rows<End> {
    Rows(rights::for_caller(|| wait_for_task(task_id, timeout)).into_iter().collect())
}

/// How a task ended.
struct End {
    id: String,
    outcome: Outcome,
    status: Option<String>,
    result: Option<JsonText>,
    settled_at: Time,
}

impl Columns for End {
    fn datums(self) -> Vec<Arg> {
        vec![
            Arg::new(self.id),
            Arg::new(self.outcome.name()),
            Arg::new(self.status),
            Arg::new(self.result),
            Arg::new(self.settled_at),
        ]
    }
}

static FIND: Statement<&str, (TaskNo, i64)> = Statement::new(
    c"SELECT t.task_no, t.xmin::pg_catalog.text::pg_catalog.int8 FROM taskq.task t WHERE t.id = $1",
);
static END_OF_TASK: Statement<TaskNo, (i8, Option<String>, Option<JsonText>, Time)> = Statement::new(
    c"SELECT s.code, s.status, s.result, s.settled_at FROM taskq.settled s WHERE s.task_no = $1",
);
static TASK_EXISTS: Statement<TaskNo, bool> =
    Statement::new(c"SELECT true FROM taskq.task t WHERE t.task_no = $1");

fn wait_for_task(task_id: Option<&str>, timeout: Option<Interval>) -> Result<Option<End>> {
    let id = required("task_id", task_id)?;
    let mut waiter = Waiter::new("timeout", required("timeout", timeout)?)?;
    let (number, inserter): (TaskNo, i64) =
        subtransaction::keeping_no_locks(|| FIND.first(id)).ok_or_else(|| Refusal::no_such_task(id))?;
    subtransaction::keeping_no_locks(|| rights::check_tasks(Doing::Look, [number]))?;
    waiter.register(vec![wake::settled_channel(number)]);
    loop {
        waiter.before_look();
        let (end, exists, next) = subtransaction::keeping_no_locks(|| {
            tables::hold();
            let end = look(id, number);
            let exists = end.is_some() || TASK_EXISTS.first(number).is_some();
            match (end, exists) {
                (None, true) => (None, true, upkeep::owed()),
                (Some(end), _) => (Some(end), true, Next::default()),
                // It may have been settled and removed in between.
                (None, false) => (look(id, number), false, Next::default()),
            }
        });
        if end.is_some() {
            return Ok(end);
        }
        if !exists {
            return Err(Refusal::deleted_meanwhile(id));
        }
        if !waiter.slept() && session::is_own(inserter) {
            notice(
                "this call waits for a task of its own transaction",
                &format!(
                    "No other session sees task \"{id}\" before the commit, so no worker can perform it."
                ),
                "Commit first, then wait.",
            );
        }
        let goes_on = waiter.sleep(next);
        rights::after_sleep("taskq.wait_for_task")?;
        subtransaction::keeping_no_locks(|| rights::check_tasks(Doing::Look, [number]))?;
        if !goes_on {
            return Ok(None);
        }
    }
}

fn look(id: &str, number: TaskNo) -> Option<End> {
    END_OF_TASK.first(number).map(|(code, status, result, settled_at)| End {
        id: id.to_owned(),
        outcome: Outcome::from_stored(code),
        status,
        result,
        settled_at,
    })
}
