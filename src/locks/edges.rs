//! Locking dependencies that are about to be removed.

use std::collections::HashSet;

use super::forms::{Lock, LockStrength, locking};
use super::order::{self, Rank};
use crate::number::TaskNo;
use crate::pg::statement::Statement;

/// Edges by number. They are found first and then locked in the order in which they are stored, as below: a scan by
/// `ctid` sorts, and no edge is ever moved.
static LOCK_EDGES: Statement<(&[TaskNo], &[TaskNo])> = Statement::new(
    c"SELECT d.after_no, d.run_no FROM taskq.dependency d
       WHERE d.ctid = ANY (ARRAY(
               SELECT e.ctid FROM unnest($1, $2) AS u(after_no, run_no)
                CROSS JOIN LATERAL (SELECT e.ctid FROM taskq.dependency e
                                     WHERE e.after_no = u.after_no AND e.run_no = u.run_no OFFSET 0) AS e))
         FOR UPDATE",
);

/// Locks dependencies that are about to be removed.
pub(crate) fn lock_edges(edges: &[(TaskNo, TaskNo)]) {
    let (after, run): (Vec<TaskNo>, Vec<TaskNo>) = edges.iter().copied().unzip();
    LOCK_EDGES.execute((after, run));
    order::holds(Rank::Edges);
}

/// Edges at either end of the tasks, in the order in which they are stored.
static EDGES: Lock<(TaskNo, TaskNo)> = locking!(
    "SELECT d.after_no, d.run_no FROM taskq.dependency d
      WHERE d.ctid = ANY (ARRAY(SELECT a.ctid FROM taskq.dependency a WHERE a.after_no = ANY ($1)
                      UNION ALL SELECT r.ctid FROM taskq.dependency r WHERE r.run_no = ANY ($1)))"
);
static SEEN_EDGES: Statement<&[TaskNo], (TaskNo, TaskNo)> = Statement::new(
    c"SELECT d.after_no, d.run_no FROM taskq.dependency d WHERE d.after_no = ANY ($1)
      UNION SELECT d.after_no, d.run_no FROM taskq.dependency d WHERE d.run_no = ANY ($1)",
);

/// Locks the dependencies of the tasks, on others and of others on them, before they are removed: the other end of
/// each may be about to be removed as well, by a transaction that takes its dependencies in another order.
pub(crate) fn lock_edges_of(task_nos: &[TaskNo]) {
    let waiting = order::may_wait(Rank::Edges);
    let locked = EDGES.statement(LockStrength::Update, waiting).query(task_nos);
    if !locked.is_empty() {
        order::holds(Rank::Edges);
    }
    if !waiting {
        let locked: HashSet<(TaskNo, TaskNo)> = locked.into_iter().collect();
        let seen = SEEN_EDGES.query(task_nos);
        if seen.iter().any(|edge| !locked.contains(edge)) {
            order::restart_with_edges(&seen);
        }
    }
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
    let seen = SEEN_EDGES.query(task_nos);
    let mut busy = HashSet::new();
    if !seen.is_empty() {
        let locked: HashSet<(TaskNo, TaskNo)> =
            EDGES.statement(LockStrength::Update, false).query(task_nos).into_iter().collect();
        busy.extend(
            seen.iter().filter(|edge| !locked.contains(edge)).flat_map(|(after, run)| [*after, *run]),
        );
    }
    TriedEdges { any: !seen.is_empty(), busy }
}
