//! What tasks that are to start over have lost, and whether they can do without.
//!
//! Of a task for which some of its dependencies suffice (`num_required`) those count that no suspension has added, as they are stored:
//! what it went on without is among them again when it starts over. Others that it had may be gone: they were deleted or replaced, their
//! retention is over, or they have started over without it. A task that has been granted, or has completed, had as many as it needs; so
//! if fewer are met of those that are stored, as many of those that are gone count as met. Any other task needs its number of what is left.

use std::collections::{HashMap, HashSet};

use super::Again;
use crate::error::{Refusal, Result};
use crate::locks;
use crate::number::TaskNo;
use crate::pg::statement::{Statement, record, sql};
use crate::recount::{Stands, stands};
use crate::settle::Lost;
use crate::state::{Condition, Outcome};
use crate::store::{numbers, settled};

record! {
/// A dependency that a task has lost.
#[derive(Clone, Copy)]
struct Loss {
    run: TaskNo,
    after: TaskNo,
    suspending: bool,
    condition: i8,
    outcome: i8,
}
}

static LOST: Statement<&[TaskNo], Loss> = Statement::new(sql!(
    "SELECT d.run_no, d.after_no, d.suspending, d.condition, s.outcome
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT d.run_no, d.after_no, d.condition, d.suspending FROM taskq.dependency d
                            WHERE d.run_no = u.task_no OFFSET 0) AS d
       CROSS JOIN LATERAL (SELECT s.code, ",
    settled::outcome!("s"),
    " AS outcome FROM taskq.settled s WHERE s.task_no = d.after_no OFFSET 0) AS s
       WHERE (d.condition = 'c' AND s.code = 'a') OR (d.condition = 'a' AND s.code = 'c')
       ORDER BY d.run_no, d.after_no"
));

/// The dependency that decides, of those that tasks have lost.
pub(super) fn deciding(task_nos: &[TaskNo]) -> HashMap<TaskNo, Lost> {
    let mut all: HashMap<TaskNo, Lost> = HashMap::new();
    if task_nos.is_empty() {
        return all;
    }
    for Loss { run, after, condition, outcome, .. } in LOST.query(task_nos) {
        let outcome = Outcome::from_stored(outcome);
        if let Some(lost) = Lost::of(after, Condition::from_stored(condition), outcome) {
            all.insert(run, Lost::decides(all.get(&run).copied(), lost));
        }
    }
    all
}

/// Whether dependencies count that a task has had and that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// As met.
    Counts,
    /// A reset takes them away: the task begins with what is left.
    IsNone,
}

/// Those that have been granted or have completed, with the number of dependencies that each had at its end.
static FREED: Statement<&[TaskNo], (TaskNo, i32)> = Statement::new(
    c"SELECT s.task_no, s.dependencies FROM taskq.settled s
       WHERE s.task_no = ANY ($1) AND (s.granted_at IS NOT NULL OR s.code = 'c')",
);

/// How many dependencies count as met that are not stored any more, of tasks for which some suffice. So many of each were `dropped` just
/// now.
pub(super) fn gone(
    stands: &HashMap<TaskNo, Stands>,
    gone: Gone,
    dropped: &HashMap<TaskNo, i32>,
) -> HashMap<TaskNo, i32> {
    let some: Vec<TaskNo> =
        stands.values().filter(|one| one.required().is_some()).map(|one| one.task_no).collect();
    if some.is_empty() || gone == Gone::IsNone {
        return HashMap::new();
    }
    let of = |(task_no, had): (TaskNo, i32)| {
        let stands = stands.get(&task_no)?;
        let missing = (stands.required()? - stands.met).max(0);
        let gone = had - stands.stored - dropped.get(&task_no).unwrap_or(&0);
        Some((task_no, gone.clamp(0, missing)))
    };
    FREED.query(some).into_iter().filter_map(of).collect()
}

/// Those of the tasks that can do without what they have lost and is not among them. Refused if one cannot that must not be left out.
pub(super) fn without_lost(
    mut all: HashSet<TaskNo>,
    asked: &HashSet<TaskNo>,
    again: Again,
) -> Result<HashSet<TaskNo>> {
    let mut lost: Vec<Loss> = LOST.query(all.iter().copied().collect::<Vec<_>>());
    // A suspension is over for one that is asked for, whatever it has lost by it.
    lost.retain(|one| !one.suspending || (again.is_retry() && !asked.contains(&one.run)));
    let mut spare = spare(&lost.iter().map(|one| one.run).collect::<Vec<_>>());
    let mut dependents: HashMap<TaskNo, Vec<Loss>> = HashMap::new();
    for one in &lost {
        dependents.entry(one.after).or_default().push(*one);
    }
    let mut gone: Vec<Loss> = lost.into_iter().filter(|one| !all.contains(&one.after)).rev().collect();
    while let Some(Loss { run, after, suspending, .. }) = gone.pop() {
        // A suspension needs all that it has added.
        if let Some(left) = spare.get_mut(&run).filter(|left| **left > 0 && !suspending) {
            *left -= 1;
            continue;
        }
        if !all.remove(&run) {
            continue;
        }
        match again {
            Again::Retry if asked.contains(&run) => return Err(cannot_be_retried(run, after)),
            Again::Retry | Again::RetryAll => {}
            Again::Rerun | Again::RerunAlone | Again::Rewind => return Err(cannot_start_over(run, after)),
        }
        gone.extend(dependents.get(&run).into_iter().flatten());
    }
    Ok(all)
}

/// Without how many of their dependencies tasks can do, those for which some suffice.
fn spare(task_nos: &[TaskNo]) -> HashMap<TaskNo, i32> {
    let stands = stands(task_nos);
    let gone = gone(&stands, Gone::Counts, &HashMap::new());
    let of = |one: &Stands| {
        let has = one.own + gone.get(&one.task_no).unwrap_or(&0);
        Some((one.task_no, has - one.required()?))
    };
    stands.values().filter_map(of).collect()
}

fn cannot_be_retried(run: TaskNo, after: TaskNo) -> Refusal {
    let ids = numbers::ids(&[run, after]);
    let id = |n: &TaskNo| ids.get(n).map_or("", String::as_str);
    let skipped = match locks::outcomes(&[after]).get(&after) {
        // It was for the case that the other one aborts.
        Some(Outcome::Completed) => {
            format!("skipped: it runs only if \"{}\" aborts, and that completed", id(&after))
        }
        Some(Outcome::Skipped) => format!("skipped, since \"{}\" was, after which it runs", id(&after)),
        _ => String::new(),
    };
    if !skipped.is_empty() {
        return Refusal::state(
            id(&run),
            &skipped,
            "cannot be retried",
            "There is nothing to retry; insert another task to have its work done all the same.",
        );
    }
    Refusal::state(
        id(&run),
        &format!("aborted because of its dependency on \"{}\"", id(&after)),
        "cannot be retried alone",
        "Retry the task that it depends on; those that aborted because of it come back with it.",
    )
}

fn cannot_start_over(run: TaskNo, after: TaskNo) -> Refusal {
    let ids = numbers::ids(&[run, after]);
    let id = |n: &TaskNo| ids.get(n).map_or("", String::as_str);
    Refusal::state(
        id(&run),
        &format!("settled, and has lost its dependency on \"{}\", which stays as it is", id(&after)),
        "cannot start over",
        "Name the task that it depends on as well, so that both start over; or leave out the one that leads to it.",
    )
}
