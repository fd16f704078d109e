//! No cycles: what a call adds is sorted topologically, together with what is stored downstream of it
//! where both ends of a new path are stored tasks.

use std::collections::{HashMap, HashSet};

use super::edges::EdgeSet;
use super::new::NewTask;
use super::stored::Stored;
use crate::error::{Refusal, Result};
use crate::graph::{self, Arc};
use crate::number::TaskNo;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::store::numbers;

/// Refuses dependencies of new tasks that close a cycle.
pub(super) fn check(tasks: &[NewTask], set: &EdgeSet, stored: &Stored) -> Result<()> {
    let mut arcs: Vec<Arc> = set.edges.iter().map(|e| (e.after, e.run)).collect();
    if stored.guarded() {
        let new: HashSet<TaskNo> = tasks.iter().map(|t| t.task_no).collect();
        let ends: Vec<TaskNo> = arcs.iter().map(|(_, run)| *run).filter(|run| !new.contains(run)).collect();
        arcs.extend(stored_arcs(&ends));
    }
    acyclic(&arcs).map_err(|path| {
        let mut ids: HashMap<TaskNo, String> = tasks.iter().map(|t| (t.task_no, t.id.clone())).collect();
        ids.extend(numbers::ids(&path));
        refusal(&path, &ids)
    })
}

/// The refusal that shows a cycle, starting with the least id, so that the same one reads the same each time.
pub(crate) fn refusal(path: &[TaskNo], ids: &HashMap<TaskNo, String>) -> Refusal {
    let mut names: Vec<String> =
        path.iter().map(|n| ids.get(n).cloned().unwrap_or_else(|| n.to_string())).collect();
    if let Some((least, _)) = names.iter().enumerate().min_by_key(|(_, name)| name.as_str()) {
        names.rotate_left(least);
        names.push(names[0].clone());
    }
    Refusal::cycle(&names)
}

/// Along edges to tasks that are blocked, and that count for the wait that these are in: what a task has gone on without does not.
static DOWNSTREAM: Statement<&[TaskNo], (TaskNo, TaskNo)> = Statement::new(
    c"SELECT d.after_no, d.run_no FROM taskq.dependency d
       WHERE d.after_no = ANY ($1) AND d.state = 'w'
         AND EXISTS (SELECT FROM taskq.blocked b WHERE b.task_no = d.run_no AND b.wait_no = d.wait_no OFFSET 0)",
);

/// All such arcs downstream of the given tasks. Callers hold the guard.
pub(crate) fn stored_arcs(from: &[TaskNo]) -> Vec<Arc> {
    let mut seen: HashSet<TaskNo> = from.iter().copied().collect();
    let mut frontier: Vec<TaskNo> = seen.iter().copied().collect();
    let mut arcs = Vec::new();
    while !frontier.is_empty() {
        check_for_interrupts();
        let found: Vec<Arc> = DOWNSTREAM.query(frontier);
        frontier = found.iter().map(|(_, run)| *run).filter(|run| seen.insert(*run)).collect();
        arcs.extend(found);
    }
    arcs
}

/// `Err` with the tasks along one of the shortest cycles through some task, each once.
pub(crate) fn acyclic(arcs: &[Arc]) -> std::result::Result<(), Vec<TaskNo>> {
    // Most calls list tasks before those that run after them; numbers then are a topological order.
    if arcs.iter().all(|(after, run)| after < run) {
        return Ok(());
    }
    graph::topological(arcs).map(drop)
}
