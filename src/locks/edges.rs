//! Locking dependencies that are about to be changed or removed.

use std::collections::HashSet;

use super::order::{self, Rank};
use crate::number::TaskNo;
use crate::pg::statement::{Statement, sql};

/// Edges by number, one after the other in the order of the arrays: the inner query is run for each of them. Each is looked up in the index
/// by both columns, see [`WAIT_AGAIN`](crate::store::dependency::WAIT_AGAIN).
macro_rules! these {
    ($locking:literal) => {
        Statement::new(sql!(
            "SELECT d.after_no, d.run_no FROM unnest($1, $2) AS u(after_no, run_no)
              CROSS JOIN LATERAL (SELECT e.after_no, e.run_no FROM taskq.dependency e
                                   WHERE e.after_no = u.after_no AND e.run_no >= u.run_no AND e.run_no <= u.run_no",
            $locking,
            ") AS d"
        ))
    };
}

type Pairs = (&'static [TaskNo], &'static [TaskNo]);
static LOCK: Statement<Pairs, (TaskNo, TaskNo)> = these!(" FOR UPDATE");
static TRY_LOCK: Statement<Pairs, (TaskNo, TaskNo)> = these!(" FOR UPDATE SKIP LOCKED");
static SEEN: Statement<Pairs, (TaskNo, TaskNo)> = these!(" OFFSET 0");

/// Locks dependencies that are about to be changed or removed. At either end there may be a settled task that the caller does not
/// hold, and whose dependencies another transaction is about to remove.
///
/// They are locked in the order of their numbers, which never change: a change of an edge stores it elsewhere, so that two calls
/// that see it in two places would lock it in two orders.
pub(crate) fn lock_edges(edges: &[(TaskNo, TaskNo)]) {
    if edges.is_empty() {
        return;
    }
    let waiting = order::may_wait(Rank::Edges);
    let pairs = sorted(edges);
    let locked = if waiting { &LOCK } else { &TRY_LOCK }.query(pairs.clone());
    if !locked.is_empty() {
        order::holds(Rank::Edges);
    }
    if !waiting {
        let seen = SEEN.query(pairs);
        if !others(&seen, &locked).is_empty() {
            // With the edges that are there.
            order::restart_with_edges(&seen);
        }
    }
}

fn sorted(edges: &[(TaskNo, TaskNo)]) -> (Vec<TaskNo>, Vec<TaskNo>) {
    let mut sorted = edges.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().unzip()
}

/// Those that are not locked.
fn others(seen: &[(TaskNo, TaskNo)], locked: &[(TaskNo, TaskNo)]) -> Vec<(TaskNo, TaskNo)> {
    let locked: HashSet<&(TaskNo, TaskNo)> = locked.iter().collect();
    seen.iter().filter(|edge| !locked.contains(edge)).copied().collect()
}

/// Edges at either end of the tasks.
static OF_TASKS: Statement<&[TaskNo], (TaskNo, TaskNo)> = Statement::new(
    c"SELECT d.after_no, d.run_no FROM taskq.dependency d WHERE d.after_no = ANY ($1)
      UNION SELECT d.after_no, d.run_no FROM taskq.dependency d WHERE d.run_no = ANY ($1)",
);

/// Locks the dependencies of the tasks, on others and of others on them, before they are removed: the other end of
/// each may be about to be removed as well, by a transaction that takes its dependencies in another order.
pub(crate) fn lock_edges_of(task_nos: &[TaskNo]) {
    lock_edges(&OF_TASKS.query(task_nos));
}

/// What [`try_lock_edges_of`] came to.
pub(crate) struct TriedEdges {
    /// There are some.
    pub(crate) any: bool,
    /// Tasks at the ends of those that another transaction has locked.
    pub(crate) busy: HashSet<TaskNo>,
}

/// Locks the dependencies of the tasks that no other transaction has locked; waits for none.
pub(crate) fn try_lock_edges_of(task_nos: &[TaskNo]) -> TriedEdges {
    let seen = OF_TASKS.query(task_nos);
    let busy = if seen.is_empty() { Vec::new() } else { others(&seen, &TRY_LOCK.query(sorted(&seen))) };
    TriedEdges {
        any: !seen.is_empty(),
        busy: busy.into_iter().flat_map(|(after, run)| [after, run]).collect(),
    }
}
