//! What suspensions meet: the tasks that are to be waited for, children that have ended a task already, and cycles.

use std::collections::{HashMap, HashSet};

use super::said::One;
use crate::error::{Refusal, Result};
use crate::insert::{EdgeSet, acyclic, cycle_refusal, stored_arcs};
use crate::locks::{self, LockStrength, guard};
use crate::number::TaskNo;
use crate::pg::statement::Statement;
use crate::rights::{self, Doing};
use crate::state::{Condition, Outcome};
use crate::store::dependency::Edge;
use crate::store::numbers;

/// Those of the tasks that children have ended which the call has inserted: a lost one that the task has to wait for. Such a task
/// waits for nothing any more.
pub(super) fn ended_by_children(tasks: &[One], children: &[Vec<String>]) -> HashSet<TaskNo> {
    if children.iter().all(Vec::is_empty) {
        return HashSet::new();
    }
    let mut ended: HashSet<TaskNo> = tasks.iter().map(|one| one.live.task_no).collect();
    let task_nos: Vec<TaskNo> = ended.iter().copied().collect();
    for task_no in locks::lock(&task_nos, LockStrength::Update).keys() {
        ended.remove(task_no);
    }
    ended
}

/// Holds what the tasks are to wait for; the edges, and what of it has ended.
pub(super) fn hold(
    tasks: &[One],
    children: &[Vec<String>],
    ended: &HashSet<TaskNo>,
) -> Result<(EdgeSet, HashMap<TaskNo, Outcome>)> {
    // What is said of a child by name comes before what is meant by waiting for all of them.
    let awaited = |one: &One, children: &[String]| -> Vec<(String, Condition)> {
        if ended.contains(&one.live.task_no) {
            return Vec::new();
        }
        let named: Vec<(String, Condition)> =
            one.how.awaited.iter().map(|awaited| (awaited.id.clone(), awaited.condition)).collect();
        let others = children.iter().filter(|id| named.iter().all(|(name, _)| name != *id));
        let others: Vec<(String, Condition)> = others.map(|id| (id.clone(), Condition::Settled)).collect();
        named.into_iter().chain(others).collect()
    };
    let awaited: Vec<Vec<(String, Condition)>> =
        tasks.iter().zip(children).map(|(one, children)| awaited(one, children)).collect();
    let ids: Vec<&str> = awaited.iter().flatten().map(|(id, _)| id.as_str()).collect();
    rights::check_named(Doing::Insert, ids.iter().copied())?;
    let (numbers, rows, outcomes) =
        locks::lock_any(&ids, &[], LockStrength::KeyShare, LockStrength::KeyShare)?;
    let find =
        |id: &str| numbers.get(id).copied().filter(|n| rows.contains_key(n) || outcomes.contains_key(n));
    let mut edges = EdgeSet::default();
    for (one, awaited) in tasks.iter().zip(&awaited) {
        let run = one.live.task_no;
        let name = || numbers::ids(&[run]).remove(&run).unwrap_or_default();
        for (id, condition) in awaited {
            let missing = || {
                let hint = "Insert it first, leave it out, or add \"signal\": true if it is a signal that may not be there yet.";
                Refusal::dependency_missing(id, &name()).with_hint(hint)
            };
            let after = find(id).ok_or_else(missing)?;
            if after == run {
                return Err(Refusal::cycle(&[id.clone(), id.clone()]));
            }
            edges
                .add(Edge { after, run, condition: *condition })
                .map_err(|has| Refusal::two_conditions(id, &name(), has.name(), condition.name()))?;
        }
    }
    Ok((edges, outcomes))
}

static WAITING: Statement<&[TaskNo]> =
    Statement::new(c"SELECT FROM taskq.dependency d WHERE d.run_no = ANY ($1) AND d.state = 'w' LIMIT 1");
static DEPENDENTS: Statement<&[TaskNo]> =
    Statement::new(c"SELECT FROM taskq.dependency d WHERE d.after_no = ANY ($1) LIMIT 1");

/// Refuses what would close a cycle.
pub(super) fn check_cycles(
    tasks: &[One],
    edges: &EdgeSet,
    outcomes: &HashMap<TaskNo, Outcome>,
) -> Result<()> {
    let runs: Vec<TaskNo> = tasks.iter().map(|one| one.live.task_no).collect();
    // What has ended blocks nothing any more.
    let open = edges.edges.iter().filter(|edge| !outcomes.contains_key(&edge.after));
    let mut arcs: Vec<(TaskNo, TaskNo)> = open.map(|edge| (edge.after, edge.run)).collect();
    if arcs.is_empty() || DEPENDENTS.execute(runs.as_slice()) == 0 {
        return Ok(());
    }
    guard();
    // What waits for nothing itself, as most children and signals, is on no cycle: the tasks behind those of the call, which may be
    // many, need not be looked at.
    // What is read here is all that counts. A call that could close a cycle with this one stores its edge under the guard, and has
    // committed by now. A suspension of one of these has had its row locked for a change, and this call has waited for that to hold it.
    if WAITING.execute(arcs.iter().map(|(after, _)| *after).collect::<Vec<_>>()) == 0 {
        return Ok(());
    }
    arcs.extend(stored_arcs(&runs));
    acyclic(&arcs).map_err(|path| cycle_refusal(&path, &numbers::ids(&path)))
}
