//! Settled tasks are removed once their retention is over. That frees and deletes no other task: those that waited for them have
//! counted their ends, or have countdown rows of them. What a suspension has added to the dependencies of a task is not removed here before
//! that task has ended: its results come with each grant.

use std::collections::HashMap;
use std::time::Duration;

use super::step::Step;
use crate::locks;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Statement, sql};
use crate::state::Outcome;
use crate::store::traces::Traces;
use crate::store::{attempts, dependency, progress, settled, step};

/// Walks `settled_expires_idx`.
static EXPIRED: Statement<(Time, i32, Time), (TaskNo, i8)> = Statement::new(sql!(
    "SELECT s.task_no, ",
    settled::outcome!("s"),
    " FROM taskq.settled s WHERE s.expires_at >= $3 AND s.expires_at <= $1
       ORDER BY s.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED"
));

/// How many are looked at in one go at most.
const MOST_REMOVED_AT_ONCE: usize = 10_000;

/// Removes up to `bound` tasks whose retention is over, from `start` on; more, where the first of them have to stay.
/// Waits for no lock: a task with a dependency that another transaction has locked is left for later. So that many such
/// tasks do not stop the others, more of them are read where nothing else has been found.
pub(super) fn step(bound: usize, start: Time, now: Time) -> Step {
    let mut most = bound.min(MOST_REMOVED_AT_ONCE);
    loop {
        let expired: HashMap<TaskNo, Outcome> = EXPIRED
            .map((now, most as i32, start), |(task_no, outcome)| (task_no, Outcome::from_stored(outcome)))
            .into_iter()
            .collect();
        let found = expired.len();
        let removed = remove_idle(expired, now);
        if removed > 0 || found < most || most == MOST_REMOVED_AT_ONCE {
            return Step { done: removed > 0, more: removed > 0 && found >= most };
        }
        check_for_interrupts();
        most = (8 * most).min(MOST_REMOVED_AT_ONCE);
    }
}

/// What suspensions have added to the dependencies of tasks that have not ended: these are given its results with each grant. (A
/// transaction that adds such a dependency from here on would have to hold the row.)
static NEEDED: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT u.task_no FROM unnest($1) AS u(task_no)
       WHERE EXISTS (SELECT FROM taskq.dependency d
                      WHERE d.after_no = u.task_no AND d.suspending
                        AND NOT EXISTS (SELECT FROM taskq.settled s WHERE s.task_no = d.run_no OFFSET 0)
                     OFFSET 0)",
);

/// When one that is needed is looked at again: there may be any number of them, and they are not to be in the way of others.
const PUT_OFF: Duration = Duration::from_secs(60 * 60);

/// Removes those of the tasks, which are locked, that have no dependency locked by another transaction and that are
/// not needed any more; how many.
fn remove_idle(mut ends: HashMap<TaskNo, Outcome>, now: Time) -> usize {
    if ends.is_empty() {
        return 0;
    }
    // No dependency can be added from here on: that takes a lock on the task's row.
    let edges = locks::try_lock_edges_of(&ends.keys().copied().collect::<Vec<_>>());
    if !edges.busy.is_empty() {
        ends.retain(|task_no, _| !edges.busy.contains(task_no));
    }
    if edges.any {
        let needed = NEEDED.query(ends.keys().copied().collect::<Vec<_>>());
        for task_no in &needed {
            ends.remove(task_no);
        }
        if !needed.is_empty() {
            settled::PUT_OFF.execute((needed, now + PUT_OFF));
        }
    }
    let task_nos: Vec<TaskNo> = ends.keys().copied().collect();
    if edges.any {
        dependency::REMOVE_AFTER.execute(task_nos.as_slice());
        dependency::REMOVE_RUN.execute(task_nos.as_slice());
    }
    settled::REMOVE.execute(task_nos.as_slice());
    progress::forget(&task_nos);
    attempts::forget(&task_nos);
    step::forget(&task_nos);
    let mut traces = Traces::default();
    traces.by_removing(&task_nos, &ends);
    traces.tidy(now);
    task_nos.len()
}
