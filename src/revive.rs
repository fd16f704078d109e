//! Bringing aborted tasks back to life, with what aborted because of them: the graph goes on from where it
//! broke. ([`rerun`] starts settled tasks over.)
//!
//! What is revived: the tasks asked for that have aborted, and downstream of them the tasks that aborted because a
//! dependency was lost; each if what it has lost is revived too, but for what it can do without. Each gets
//! new tries and waits again for its dependencies that are not settled, but for those that a suspension had added. A live
//! dependent that had counted the abort of a revived task (its condition was `settled` or `aborted`, as a rule) waits for it
//! again, unless it has enough others (`num_required`), keeps an earlier end of it, has waited for it in a suspension that is
//! over, or is in progress: of one in progress the dependency has done its work and is removed.
//!
//! Locks: the graph guard, then in rounds live rows of dependents and the `settled` rows of the revived, then the live rows of all
//! they wait for and all that wait for them. That is not the global order, nor one wave: callers are restartable (see
//! `locks::order`).

mod edges;
mod place;
mod rerun;
mod rewind;
mod some_of_many;
mod suspending;
mod uncount;

pub(crate) use place::place;
pub(crate) use rerun::{Dependents, Keeps, start_over};
pub(crate) use rewind::{lock_to_rewind, without_suspension};
pub(crate) use some_of_many::Gone;
pub(crate) use suspending::drop_suspending;
use suspending::drop_unfinished;
use uncount::DEPENDENTS;
pub(crate) use uncount::{KeptEnds, uncount};

use std::collections::{HashMap, HashSet};

use crate::error::{Refusal, Result};
use crate::insert::{acyclic, cycle_refusal, lock_for_change, stored_arcs};
use crate::locks::{self, LockStrength, guard};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::settle::fold;
use crate::state::Outcome;
use crate::store::live::Live;
use crate::store::numbers;

/// What happens to a task that cannot come back because a dependency that it has lost stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unrevivable {
    /// It stays as it is.
    Leave,
    /// The whole call is refused, if the task is one of those asked for.
    Refuse,
}

static ABORTED: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT s.task_no FROM taskq.settled s
       WHERE s.task_no = ANY ($1) AND s.code = 'a'
         AND EXISTS (SELECT FROM taskq.task t WHERE t.task_no = s.task_no OFFSET 0)",
);
static ABORTED_WITH: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT s.task_no FROM taskq.settled s
       WHERE s.task_no = ANY (ARRAY(SELECT d.run_no FROM taskq.dependency d WHERE d.after_no = ANY ($1)))
         AND s.code = 'a' AND s.cause IN ('d', 'k')",
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

static LOST: Statement<&[TaskNo], (TaskNo, TaskNo, bool)> = Statement::new(
    c"SELECT d.run_no, d.after_no, d.suspending
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT d.run_no, d.after_no, d.first_condition, d.suspending FROM taskq.dependency d
                            WHERE d.run_no = u.task_no OFFSET 0) AS d
       CROSS JOIN LATERAL (SELECT s.code FROM taskq.settled s WHERE s.task_no = d.after_no OFFSET 0) AS s
       WHERE (d.first_condition = 'c' AND s.code = 'a') OR (d.first_condition = 'a' AND s.code = 'c')",
);

/// Revives the tasks and returns how many tasks came back.
pub(crate) fn revive(asked: &[TaskNo], unrevivable: Unrevivable, now: Time) -> Result<i64> {
    guard();
    let asked = hold(&ABORTED, asked);
    let revived = with_downstream(&asked, now);
    let revived = without_lost(revived, &asked, unrevivable)?;
    if revived.is_empty() {
        return Ok(0);
    }
    let task_nos: Vec<TaskNo> = {
        let mut task_nos: Vec<TaskNo> = revived.iter().copied().collect();
        task_nos.sort_unstable();
        task_nos
    };
    lock_neighbours(&task_nos);
    let dropped = drop_unfinished(&task_nos);
    uncount(&task_nos, &revived, KeptEnds::Stay, now);
    place(&task_nos, &HashMap::new(), &dropped, Gone::Counts, now);
    // While they were settled, edges may have been added that only now close a cycle.
    acyclic(&stored_arcs(&task_nos)).map_err(|path| cycle_refusal(&path, &numbers::ids(&path)))?;
    Ok(task_nos.len() as i64)
}

/// The tasks, and all downstream of them that aborted because a dependency was lost.
static DOWNSTREAM: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"WITH RECURSIVE reached AS (
        SELECT u.task_no FROM pg_catalog.unnest($1) AS u(task_no)
         UNION
        SELECT d.run_no
          FROM reached AS r
         CROSS JOIN LATERAL (SELECT d.run_no FROM taskq.dependency d WHERE d.after_no = r.task_no OFFSET 0) AS d
         CROSS JOIN LATERAL (SELECT FROM taskq.settled s
                              WHERE s.task_no = d.run_no AND s.code = 'a' AND s.cause IN ('d', 'k') OFFSET 0) AS s)
      SELECT r.task_no FROM reached AS r",
);

/// The tasks asked for, and all downstream that aborted because a dependency was lost: in one round as far as they are seen, since
/// a chain has as many levels as tasks, and in others what has changed while the round before waited. What was reached through a task
/// that has gone meanwhile is sorted out by [`without_lost`], or was not found a second time.
///
/// On the way, live dependents are locked and their deferred signals counted: one of them may abort by
/// that, and belongs to the revived then.
fn with_downstream(asked: &[TaskNo], now: Time) -> HashSet<TaskNo> {
    let mut all: HashSet<TaskNo> = asked.iter().copied().collect();
    let mut frontier: Vec<TaskNo> = asked.to_vec();
    while !frontier.is_empty() {
        check_for_interrupts();
        let seen: Vec<TaskNo> = DOWNSTREAM.query(frontier);
        let reached: HashSet<TaskNo> = seen.iter().copied().collect();
        // What has aborted has no live row, and no other call brings it back: that takes the guard.
        let mut dependents: Vec<TaskNo> = DEPENDENTS.map(seen.as_slice(), |(_, run, ..)| run);
        dependents.retain(|run| !reached.contains(run) && !all.contains(run));
        if !dependents.is_empty() {
            lock_for_change(&dependents);
            fold::of(&dependents, now);
        }
        let held = hold(&ABORTED_WITH, &seen);
        frontier = held.into_iter().filter(|n| all.insert(*n) && !reached.contains(n)).collect();
    }
    all
}

/// Those of the tasks that can do without what they have lost and is not among them.
fn without_lost(
    mut revived: HashSet<TaskNo>,
    asked: &[TaskNo],
    unrevivable: Unrevivable,
) -> Result<HashSet<TaskNo>> {
    let task_nos: Vec<TaskNo> = revived.iter().copied().collect();
    let asked: HashSet<TaskNo> = asked.iter().copied().collect();
    // A suspension is over for one that is asked for, whatever it has lost by it.
    let counts = |(run, _, suspending): &(TaskNo, TaskNo, bool)| !suspending || !asked.contains(run);
    let lost: Vec<(TaskNo, TaskNo, bool)> = LOST.query(task_nos).into_iter().filter(counts).collect();
    let mut spare = spare(&lost.iter().map(|(run, ..)| *run).collect::<Vec<_>>(), &HashMap::new());
    let mut dependents: HashMap<TaskNo, Vec<(TaskNo, bool)>> = HashMap::new();
    let mut gone: Vec<(TaskNo, TaskNo, bool)> = Vec::new();
    for (run, after, suspending) in lost {
        dependents.entry(after).or_default().push((run, suspending));
        if !revived.contains(&after) {
            gone.push((run, after, suspending));
        }
    }
    while let Some((run, after, suspending)) = gone.pop() {
        // A suspension needs all that it has added.
        if let Some(left) = spare.get_mut(&run).filter(|left| **left > 0 && !suspending) {
            *left -= 1;
            continue;
        }
        if !revived.remove(&run) {
            continue;
        }
        if unrevivable == Unrevivable::Refuse && asked.contains(&run) {
            return Err(unrevivable_refusal(run, after));
        }
        let of_this = dependents.get(&run).into_iter().flatten();
        gone.extend(of_this.map(|(dependent, suspending)| (*dependent, run, *suspending)));
    }
    Ok(revived)
}

/// Without how many of all their dependencies settled tasks can do, those for which some suffice. So many of each were `dropped` just now.
fn spare(task_nos: &[TaskNo], dropped: &HashMap<TaskNo, i32>) -> HashMap<TaskNo, i32> {
    some_of_many::had(task_nos, Gone::Counts, dropped)
        .into_iter()
        .map(|(task_no, had)| (task_no, had.spare()))
        .collect()
}

fn unrevivable_refusal(run: TaskNo, after: TaskNo) -> Refusal {
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
        "cannot be retried by itself",
        "Retry the task that it depends on; those that aborted because of it come back with it.",
    )
}

static NEIGHBOURS: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT d.run_no FROM taskq.dependency d WHERE d.after_no = ANY ($1)
      UNION
      SELECT d.after_no FROM taskq.dependency d WHERE d.run_no = ANY ($1)",
);

/// Locks the live rows of all that these tasks, which are the call's already, wait for and all that wait for them, in one go.
///
/// What they wait for cannot settle from here to the end of the transaction: it has done so before, and is seen to have, or it
/// finds the revived tasks waiting when it does. There are no other neighbours by then: a call that links one of these tasks to
/// another locks it, live or settled, and this call has each of them locked.
pub(crate) fn lock_neighbours(task_nos: &[TaskNo]) -> HashMap<TaskNo, Live> {
    let own: HashSet<TaskNo> = task_nos.iter().copied().collect();
    let mut neighbours: Vec<TaskNo> = NEIGHBOURS.query(task_nos);
    neighbours.retain(|task_no| !own.contains(task_no));
    if neighbours.is_empty() { HashMap::new() } else { lock_for_change(&neighbours) }
}
