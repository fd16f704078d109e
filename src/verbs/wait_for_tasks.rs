//! `CALL wait_for_tasks`: waiting for the ends of tasks without holding back vacuum.
//!
//! It ends its caller's transaction and sleeps in a new one that has no snapshot and no id. The look is a function of its own with
//! the owner's rights, because a procedure that commits cannot have them.

use pgrx::datum::Interval;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::wait_for_work::over;
use super::waiter::Waiter;
use crate::error::{Refusal, Result, or_throw, required};
use crate::locks::{self, tables};
use crate::number::TaskNo;
use crate::pg::procedure::{Call, procedure};
use crate::pg::statement::Statement;
use crate::pg::subtransaction;
use crate::pg::table::look as look_at;
use crate::rights::{self, Doing};
use crate::store::{numbers, task};
use crate::upkeep::{self, Next};
use crate::wake;

procedure!(taskq_wait_for_tasks_wrapper, pg_finfo_taskq_wait_for_tasks_wrapper, wait_for_tasks);

static LOOK_AT_TASKS: Statement<(&[TaskNo], &[&str]), i32> =
    Statement::new(c"SELECT taskq._num_settled($1, $2)");
static NUMBERS: Statement<&[&str], TaskNo> = Statement::new(c"SELECT taskq._task_channels($1)");

/// `CALL taskq.wait_for_tasks(task_ids text[], timeout interval, INOUT num_settled integer)`
fn wait_for_tasks(call: &Call) -> pg_sys::Datum {
    let (ids, mut waiter) = or_throw((|| {
        let ids: Vec<Option<String>> = required("task_ids", call.argument(0))?;
        let ids = ids.into_iter().map(|id| required("task_ids", id)).collect::<Result<Vec<String>>>()?;
        Ok((ids, waiter(call)?))
    })());
    call.leave_transaction("wait_for_tasks");
    // Unknown ids are refused here, before any sleep. From here on the numbers count: another task that
    // takes an id is not the one that is waited for.
    let numbers: Vec<TaskNo> = subtransaction::keeping_no_locks(|| NUMBERS.query(ids.clone()));
    let tasks: Vec<(TaskNo, &str)> = numbers.into_iter().zip(ids.iter().map(String::as_str)).collect();
    // All are waited for: it is enough to be found under a few that are not over yet, and then under the
    // next few. A lock for each of many tasks would fill the server's lock table.
    let mut left = tasks.as_slice();
    loop {
        let (few, _) = left.split_at(left.len().min(MOST_CHANNELS));
        waiter.register(few.iter().map(|(n, _)| wake::settled_channel(*n)).collect());
        waiter.before_look();
        let (num_over, next) = look(few);
        if num_over == few.len() {
            left = &left[few.len()..];
            if left.is_empty() {
                return over(call, tasks.len() as i32);
            }
            continue;
        }
        if !waiter.sleep(next) {
            return over(call, look(&tasks).0 as i32);
        }
    }
}

/// Under how many tasks one call is registered at most.
const MOST_CHANNELS: usize = 16;

/// How many of the tasks are over; and if not all are, what is due meanwhile.
fn look(tasks: &[(TaskNo, &str)]) -> (usize, Next) {
    let (numbers, ids): (Vec<TaskNo>, Vec<&str>) = tasks.iter().copied().unzip();
    subtransaction::keeping_no_locks(|| {
        rights::for_no_caller(tables::hold);
        let num_over = LOOK_AT_TASKS.first((numbers, ids)).unwrap_or(0) as usize;
        (num_over, if num_over < tasks.len() { upkeep::owed() } else { Next::default() })
    })
}

fn waiter(call: &Call) -> Result<Waiter> {
    let timeout: Interval = required("timeout", call.argument(1))?;
    Waiter::new("timeout", timeout)
}

/// `taskq._task_channels(task_ids text[]) -> SETOF bigint`: the numbers of tasks that must exist.
#[pg_extern(sql = "")]
fn taskq_task_channels(task_ids: Vec<Option<String>>) -> SetOfIterator<'static, i64> {
    SetOfIterator::new(rights::for_caller(|| {
        tables::hold();
        let ids: Vec<&str> = task_ids.iter().flatten().map(String::as_str).collect();
        let numbers = numbers::by_id(&ids);
        rights::check_tasks(Doing::Look, numbers.values().copied())?;
        ids.iter()
            .map(|id| numbers.get(*id).map(|n| n.0).ok_or_else(|| Refusal::no_such_task(id)))
            .collect::<Result<Vec<i64>>>()
    }))
}

/// `taskq._num_settled(task_nos bigint[], task_ids text[]) -> integer`: how many of the tasks are over: settled, also by
/// having been replaced, or deleted.
///
/// A number says nothing without the id: for a made-up number the answer is that such a task is over, whether or not there
/// is one.
#[pg_extern(sql = "")]
fn taskq_num_settled(task_nos: Vec<Option<i64>>, task_ids: Vec<Option<String>>) -> i32 {
    rights::for_caller(|| {
        let tasks: Vec<(TaskNo, &str)> = task_nos
            .iter()
            .zip(&task_ids)
            .filter_map(|(task_no, id)| Some((TaskNo((*task_no)?), id.as_deref()?)))
            .collect();
        let are_there = look_at(|look| task::have_ids(look, &tasks));
        let there: Vec<TaskNo> =
            tasks.iter().zip(are_there).filter(|(_, is_there)| *is_there).map(|((n, _), _)| *n).collect();
        rights::check_found(Doing::Look, there.iter().copied())?;
        Ok((tasks.len() - there.len() + locks::outcomes(&there).len()) as i32)
    })
}
