//! How tasks ended, and holding that.

use std::collections::HashMap;

use super::forms::{Lock, LockStrength, locking};
use super::order::{self, Rank};
use crate::number::TaskNo;
use crate::pg::statement::{Statement, sql};
use crate::state::Outcome;
use crate::store::settled::outcome;

static LOCK_SETTLED: Lock<(TaskNo, i8)> = locking!(concat!(
    "SELECT s.task_no, ",
    outcome!("s"),
    " FROM taskq.settled s WHERE s.task_no = ANY ($1) ORDER BY s.task_no"
));
static OUTCOMES: Statement<&[TaskNo], (TaskNo, i8)> = Statement::new(sql!(
    "SELECT s.task_no, ",
    outcome!("s"),
    " FROM taskq.settled s WHERE s.task_no = ANY ($1)"
));

/// How those of the tasks that are settled ended; no other transaction removes them before this one ends, so
/// that an edge to one of them cannot be left behind by its removal. Waits for a transaction that removes or changes one of
/// them; a restartable call that may not wait begins anew.
pub(crate) fn hold_outcomes(task_nos: &[TaskNo], strength: LockStrength) -> HashMap<TaskNo, Outcome> {
    let waiting = order::may_wait(Rank::Settled);
    let held: HashMap<TaskNo, Outcome> = LOCK_SETTLED
        .statement(strength, waiting)
        .map(task_nos, |(task_no, outcome)| (task_no, Outcome::from_stored(outcome)))
        .into_iter()
        .collect();
    if !held.is_empty() {
        order::holds(Rank::Settled);
    }
    if !waiting && outcomes(task_nos).keys().any(|task_no| !held.contains_key(task_no)) {
        order::restart_with_settled(task_nos, strength);
    }
    held
}

/// How those of the tasks that are settled ended.
pub(crate) fn outcomes(task_nos: &[TaskNo]) -> HashMap<TaskNo, Outcome> {
    OUTCOMES
        .map(task_nos, |(task_no, outcome)| (task_no, Outcome::from_stored(outcome)))
        .into_iter()
        .collect()
}
