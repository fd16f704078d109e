//! Settled tasks start over, each where its dependencies say it belongs.
//!
//! A **retry** takes aborted tasks, and downstream of them those that aborted because a dependency was lost, if what they have lost
//! comes back too. They keep what they have reported and saved, and what they have got by suspensions: the graph goes on from where it
//! broke. A **rerun** takes settled tasks however they ended, and every settled task that is built on them, whatever lies in between.
//! They begin from nothing. What a suspension has added leads nowhere there: it has served a moment of the task, not its beginning. Nor
//! does what a task has gone on without.
//!
//! A live dependent that had counted the end of such a task waits for it again ([`again`]), or is tied to it no more.
//!
//! Locks: the graph guard, the `settled` rows of those that start over, live rows of dependents, then the live rows of all that they wait
//! for and all that wait for them. That is not the global order, nor one wave: callers are restartable (see `locks::order`).

mod again;
mod downstream;
mod lost;
mod place;
mod rewind;
mod start;
mod suspending;

pub(crate) use again::Dependents;
pub(crate) use lost::Gone;
pub(crate) use place::{Back, come_back};
pub(crate) use rewind::{lock_to_rewind, without_suspension};
pub(crate) use start::start_over;
pub(crate) use suspending::drop_suspending;

use std::collections::{HashMap, HashSet};

use crate::insert::lock_for_change;
use crate::locks::{self, LockStrength};
use crate::number::TaskNo;
use crate::pg::statement::Statement;
use crate::store::live::Live;

/// Which tasks start over, and what they keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Those of the tasks that have aborted, and those that aborted because of them. A task that cannot come back, because a dependency
    /// that it has lost stays as it is, stays as well.
    RetryAll,
    /// The same; one of those asked for that cannot come back is the refusal.
    Retry,
    /// Those that are settled, and all that is settled downstream.
    Rerun,
    /// Those that are settled, and no others.
    RerunAlone,
    /// As a rerun; those asked for keep their steps, of which the caller has removed some.
    Rewind,
}

impl Again {
    fn is_retry(self) -> bool {
        matches!(self, Again::RetryAll | Again::Retry)
    }

    fn dependents(self) -> Dependents {
        match self {
            Again::RetryAll | Again::Retry => Dependents::Wait,
            Again::Rerun | Again::Rewind => Dependents::WaitForTheirOwn,
            Again::RerunAlone => Dependents::Stay,
        }
    }
}

static ABORTED: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT s.task_no FROM taskq.settled s
       WHERE s.task_no = ANY ($1) AND s.code = 'a'
         AND EXISTS (SELECT FROM taskq.task t WHERE t.task_no = s.task_no OFFSET 0)",
);
static SETTLED: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT s.task_no FROM taskq.settled s
       WHERE s.task_no = ANY ($1)
         AND EXISTS (SELECT FROM taskq.task t WHERE t.task_no = s.task_no OFFSET 0)",
);

/// Those of the settled tasks that a statement finds, locked for a change. What was in the way may have changed them:
/// the statement is asked again.
fn hold(which: &'static Statement<&'static [TaskNo], TaskNo>, task_nos: &[TaskNo]) -> Vec<TaskNo> {
    let found: Vec<TaskNo> = which.query(task_nos);
    if found.is_empty() {
        return found;
    }
    let held = locks::hold_outcomes(&found, LockStrength::Update);
    let mut still: Vec<TaskNo> = which.query(task_nos);
    still.retain(|task_no| held.contains_key(task_no));
    still
}

static NEIGHBOURS: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT d.run_no FROM taskq.dependency d WHERE d.after_no = ANY ($1)
      UNION
      SELECT d.after_no FROM taskq.dependency d WHERE d.run_no = ANY ($1)",
);

/// Locks the live rows of all that these tasks, which are the call's already, wait for and all that wait for them, in one go.
///
/// What they wait for cannot settle from here to the end of the transaction: it has done so before, and is seen to have, or it
/// finds the tasks waiting when it does. There are no other neighbours by then: a call that links one of these tasks to
/// another locks it, live or settled, and this call has each of them locked.
pub(crate) fn lock_neighbours(task_nos: &[TaskNo]) -> HashMap<TaskNo, Live> {
    let own: HashSet<TaskNo> = task_nos.iter().copied().collect();
    let mut neighbours: Vec<TaskNo> = NEIGHBOURS.query(task_nos);
    neighbours.retain(|task_no| !own.contains(task_no));
    if neighbours.is_empty() { HashMap::new() } else { lock_for_change(&neighbours) }
}
