//! Locking dependencies that are about to be changed or removed.

use std::collections::HashSet;

use super::forms::{Lock, LockStrength, locking};
use super::order::{self, Rank};
use crate::number::TaskNo;
use crate::pg::statement::{Statement, sql};

/// Edges by number. They are found first and then locked in the order in which they are stored, as below: a scan by
/// `ctid` sorts. Each is looked up in the index by both columns, see [`WAIT_AGAIN`](crate::store::dependency::WAIT_AGAIN).
macro_rules! these {
    ($locking:literal) => {
        Statement::new(sql!(
            "SELECT d.after_no, d.run_no FROM taskq.dependency d
              WHERE d.ctid = ANY (ARRAY(
                      SELECT e.ctid FROM unnest($1, $2) AS u(after_no, run_no)
                       CROSS JOIN LATERAL (SELECT e.ctid FROM taskq.dependency e
                                            WHERE e.after_no = u.after_no AND e.run_no >= u.run_no AND e.run_no <= u.run_no
                                            OFFSET 0) AS e))",
            $locking
        ))
    };
}

type Pairs = (&'static [TaskNo], &'static [TaskNo]);
static LOCK: Statement<Pairs, (TaskNo, TaskNo)> = these!(" FOR UPDATE");
static TRY_LOCK: Statement<Pairs, (TaskNo, TaskNo)> = these!(" FOR UPDATE SKIP LOCKED");
static SEEN: Statement<Pairs, (TaskNo, TaskNo)> = these!("");

/// Locks dependencies that are about to be changed or removed. At either end there may be a settled task that the caller does not
/// hold, and whose dependencies another transaction is about to remove.
pub(crate) fn lock_edges(edges: &[(TaskNo, TaskNo)]) {
    if edges.is_empty() {
        return;
    }
    let pairs: (Vec<TaskNo>, Vec<TaskNo>) = edges.iter().copied().unzip();
    let waiting = order::may_wait(Rank::Edges);
    let locked = if waiting { &LOCK } else { &TRY_LOCK }.query(pairs.clone());
    if !locked.is_empty() {
        order::holds(Rank::Edges);
    }
    if !waiting {
        restart_unless_all(&locked, &SEEN.query(pairs));
    }
}

/// Begins anew with the edges that are there, if another transaction has one of them.
fn restart_unless_all(locked: &[(TaskNo, TaskNo)], seen: &[(TaskNo, TaskNo)]) {
    let locked: HashSet<&(TaskNo, TaskNo)> = locked.iter().collect();
    if seen.iter().any(|edge| !locked.contains(edge)) {
        order::restart_with_edges(seen);
    }
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
        restart_unless_all(&locked, &SEEN_EDGES.query(task_nos));
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
