//! Workgroups: rate-limit domains that a worker holds back after a refusal from outside (such as a 429).

use std::collections::{BTreeMap, HashMap};

use pgrx::datum::Interval;

use crate::error::{Refusal, Result};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::store::workgroup;

static OF_TASKS: Statement<&[TaskNo], (TaskNo, Option<String>)> =
    Statement::new(c"SELECT t.task_no, t.workgroup FROM taskq.task t WHERE t.task_no = ANY ($1)");

/// A task that is being returned, its id, and for how long its workgroup is to be held back.
pub(crate) struct Delayed<'a> {
    /// The number of the task, by which its workgroup is looked up.
    pub(crate) task_no: TaskNo,
    /// Its id, for a refusal.
    pub(crate) id: &'a str,
    /// How long the workgroup is held back, from now on.
    pub(crate) delay: Interval,
}

/// Holds back the workgroups of tasks that are being returned, at least until the delays are over: of several
/// workers that were refused by the service, the one whose delay ends last decides. The call waits for
/// no other.
pub(crate) fn delay_of(delayed: &[Delayed], now: Time) -> Result<()> {
    if delayed.is_empty() {
        return Ok(());
    }
    let task_nos: Vec<TaskNo> = delayed.iter().map(|d| d.task_no).collect();
    let names: HashMap<TaskNo, String> = OF_TASKS
        .map(task_nos, |(task_no, workgroup)| Some((task_no, workgroup?)))
        .into_iter()
        .flatten()
        .collect();
    let mut until: BTreeMap<&str, Time> = BTreeMap::new();
    for task in delayed {
        let Some(name) = names.get(&task.task_no) else {
            return Err(Refusal::argument(
                "argument \"delay_workgroup\" is given for a task without a workgroup",
                &format!("Task \"{}\" has none.", task.id),
                "Insert the task with a workgroup, or leave the argument out.",
            ));
        };
        let time = until.entry(name).or_insert(now);
        *time = now.plus(task.delay).max(*time);
    }
    let (names, times): (Vec<&str>, Vec<Time>) = until.into_iter().unzip();
    workgroup::DELAY_FURTHER.execute((names, times));
    Ok(())
}
