//! `rerun_tasks` and `rewind_task`: settled tasks start over, from the beginning or from a step; a rewind takes pending ones as well.

use std::collections::HashSet;

use pgrx::prelude::*;

use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::input::check_name;
use crate::locks::{self, Idle, LockStrength, restartable};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::revive::{Again, lock_to_rewind, start_over, without_suspension};
use crate::rights::{self, Doing};
use crate::store::live::Live;
use crate::store::{numbers, step};

/// `taskq.rerun_tasks(task_ids, downstream) -> bigint`
#[pg_extern(sql = "")]
fn taskq_rerun_tasks(task_ids: Option<Vec<Option<String>>>, downstream: Option<bool>) -> i64 {
    rights::for_caller(|| {
        let ids = required("task_ids", task_ids)?;
        let ids: Vec<&str> = ids.iter().flatten().map(String::as_str).collect();
        let again = if downstream.unwrap_or(true) { Again::Rerun } else { Again::RerunAlone };
        restartable(|| rerun(&ids, again, clock::now()))
    })
}

/// A task may be replaced while its row is waited for: then the id is another's, and that one is looked at as well.
fn rerun(ids: &[&str], again: Again, now: Time) -> Result<i64> {
    let (mut done, mut count): (HashSet<TaskNo>, i64) = Default::default();
    loop {
        check_for_interrupts();
        let mut task_nos: Vec<TaskNo> = numbers::by_id(ids).into_values().collect();
        task_nos.retain(|task_no| done.insert(*task_no));
        if task_nos.is_empty() {
            return Ok(count);
        }
        rights::check_tasks(Doing::Change, task_nos.iter().copied())?;
        count += start_over(&task_nos, again, now)?;
    }
}

/// `taskq.rewind_task(task_id, step) -> bigint`
#[pg_extern(sql = "")]
fn taskq_rewind_task(task_id: Option<&str>, step: Option<&str>) -> i64 {
    rights::for_caller(|| {
        let id = required("task_id", task_id)?;
        let step = check_name("step", step)?;
        rights::check_named(Doing::Change, [id])?;
        restartable(|| rewind(id, step, clock::now()))
    })
}

/// How many steps are forgotten. The row of the task, live or settled, is the call's: no step is saved meanwhile.
fn rewind(id: &str, step: &str, now: Time) -> Result<i64> {
    let (number, row) = lock(id, now)?;
    let Some((position, _)) = step::FIND.first((number, step)) else {
        return Err(Refusal::no_such_step(id, step));
    };
    let forgotten = step::REMOVE_FROM.execute((number, position));
    match row {
        Some(row) => without_suspension(&row, now),
        None => {
            start_over(&[number], Again::Rewind, now)?;
        }
    }
    Ok(forgotten.cast_signed())
}

/// The task, and its row if it is pending.
fn lock(id: &str, now: Time) -> Result<(TaskNo, Option<Live>)> {
    let idle = Idle { ids: vec![id], refusal };
    idle.look()?;
    loop {
        check_for_interrupts();
        let (numbers, mut rows, _) =
            locks::lock_any(&[id], std::slice::from_ref(&idle), LockStrength::Update, LockStrength::Update)?;
        let number = *numbers.get(id).ok_or_else(|| Refusal::no_such_task(id))?;
        rights::check_tasks(Doing::Change, [number])?;
        let row = rows.remove(&number);
        if row.as_ref().is_none_or(|row| lock_to_rewind(row, now)) {
            return Ok((number, row));
        }
    }
}

fn refusal(id: &str) -> Refusal {
    locks::held(id, "cannot be rewound", "Wait until it is returned, or cancel it first.")
}
