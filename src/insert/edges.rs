//! Dependencies of new tasks: from ids to numbers, and into the tables.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::new::NewTask;
use super::pass::Came;
use super::stored::{Stored, cannot_wait};
use super::waits::Waits;
use crate::error::{Refusal, Result};
use crate::input::Reference;
use crate::number::{FIRST_WAIT, TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::rights;
use crate::settle::{Delta, Deltas, propagate_deltas};
use crate::state::Condition;
use crate::store::dependency::{self, Edge};
use crate::store::live::{self, Counter, Live, Place};
use crate::store::{blocked, task};

/// Edges without duplicates.
#[derive(Default)]
pub(crate) struct EdgeSet {
    conditions: HashMap<(TaskNo, TaskNo), Condition>,
    /// In the order in which they were first added.
    pub(crate) edges: Vec<Edge>,
}

impl EdgeSet {
    /// Adds an edge unless it is there; the same edge with another condition is the error.
    pub(crate) fn add(&mut self, edge: Edge) -> std::result::Result<(), Condition> {
        match self.conditions.insert((edge.after, edge.run), edge.condition) {
            None => {
                self.edges.push(edge);
                Ok(())
            }
            Some(condition) if condition == edge.condition => Ok(()),
            Some(condition) => Err(condition),
        }
    }

    /// Adds an edge unless it is there, with whichever condition.
    fn add_if_new(&mut self, edge: Edge) {
        if let Entry::Vacant(place) = self.conditions.entry((edge.after, edge.run)) {
            place.insert(edge.condition);
            self.edges.push(edge);
        }
    }
}

/// The call's dependencies as edges, each once. An id means the task that is inserted with it, else what stands for an element that is
/// not, or for a task whose place is taken, else a stored task.
pub(super) fn resolve(
    tasks: &[NewTask],
    came: &Came,
    stored: &Stored,
    ignore_missing: bool,
) -> Result<EdgeSet> {
    let any = tasks.iter().chain(&came.out).any(|task| task.references().next().is_some());
    if !any && came.follows.is_empty() {
        return Ok(EdgeSet::default());
    }
    let inside: HashMap<&str, TaskNo> = tasks.iter().map(|t| (t.id.as_str(), t.task_no)).collect();
    let new: HashSet<TaskNo> = inside.values().copied().collect();
    let names = Names { came, stored, ignore_missing, inside, new };
    let mut set = EdgeSet::default();
    for task in tasks {
        let waits = task.spec.depends_on.iter().map(|r| (r, true));
        let signals = task.spec.to_signal_after.iter().map(|r| (r, false));
        for (reference, waits) in waits.chain(signals) {
            let Some(other) = names.other(task, task.task_no, reference, waits)? else { continue };
            let (after, run) = if waits { (other, task.task_no) } else { (task.task_no, other) };
            set.add(Edge { after, run, condition: reference.condition }).map_err(|has| {
                let (after, run) = if waits {
                    (reference.id.as_str(), task.id.as_str())
                } else {
                    (task.id.as_str(), reference.id.as_str())
                };
                Refusal::two_conditions(after, run, has.name(), reference.condition.name())
            })?;
        }
    }
    // What was to run after an element runs after the one that has its place.
    for (task, successor) in came.succeeded() {
        for reference in &task.spec.to_signal_after {
            if let Some(other) = names.other(task, successor, reference, false)? {
                set.add_if_new(Edge { after: successor, run: other, condition: reference.condition });
            }
        }
    }
    for (after, run) in &came.follows {
        set.add_if_new(Edge { after: *after, run: *run, condition: Condition::Settled });
    }
    Ok(set)
}

/// What ids mean in dependencies.
struct Names<'a> {
    came: &'a Came,
    stored: &'a Stored,
    ignore_missing: bool,
    /// The tasks that are inserted, by id.
    inside: HashMap<&'a str, TaskNo>,
    new: HashSet<TaskNo>,
}

impl Names<'_> {
    /// The task at the other end of a dependency that an element names, and that is one of the task `own`; `None` if there is none. `waits`:
    /// that is to run after the other.
    fn other(
        &self,
        task: &NewTask,
        own: TaskNo,
        reference: &Reference,
        waits: bool,
    ) -> Result<Option<TaskNo>> {
        let with_id = self.inside.get(reference.id.as_str()).copied();
        let stands_for = || self.came.meaning(&reference.id);
        let is_there = |other: &TaskNo| self.new.contains(other) || self.stored.has(*other);
        let meant = with_id.or_else(stands_for);
        if !waits && meant.is_some_and(|other| !self.new.contains(&other)) {
            // Before anything is said of it: such a caller has not locked it.
            rights::check_blocking()?;
        }
        let other = meant.filter(is_there);
        let Some(other) = other.or_else(|| self.stored.find(&reference.id)) else {
            return match self.ignore_missing {
                true => Ok(None),
                false => Err(Refusal::dependency_missing(&reference.id, &task.id)),
            };
        };
        if other == own {
            // If that is not what it says, it has the place of what it was to come after, or before.
            let says_so = with_id == Some(task.task_no);
            return if says_so { Err(Refusal::cycle(&[task.id.clone(), task.id.clone()])) } else { Ok(None) };
        }
        if !waits && !self.new.contains(&other) {
            rights::check_blocking()?;
            may_wait(&reference.id, other, &self.stored.live)?;
        }
        Ok(Some(other))
    }
}

/// Refuses a dependency of a stored task that is in progress, or has no live row.
pub(crate) fn may_wait(id: &str, task_no: TaskNo, live: &HashMap<TaskNo, Live>) -> Result<()> {
    let state = match live.get(&task_no) {
        Some(row) if row.in_progress() => "in progress",
        Some(_) => return Ok(()),
        None => "settled",
    };
    Err(cannot_wait(id, state))
}

/// Stores edges that are not stored yet, for the waits that their tasks are in. `live` has those that are stored.
pub(crate) fn store(set: &EdgeSet, live: &HashMap<TaskNo, Live>) {
    if set.edges.is_empty() {
        return;
    }
    let mut edges: Vec<&Edge> = set.edges.iter().collect();
    edges.sort_unstable_by_key(|e| (e.after, e.run));
    dependency::insert(edges.into_iter().map(|edge| (*edge, next_wait(live.get(&edge.run)))), false);
}

/// In which of its waits a task is, or will be if it comes to wait for new dependencies: in the first, if it waits for nothing now.
/// One that needs all of its dependencies has then counted the ends of those that it had: none is on its way to that wait.
fn next_wait(row: Option<&Live>) -> WaitNo {
    row.and_then(Live::counter).map_or(FIRST_WAIT, |counter| counter.wait_no)
}

/// Makes stored tasks wait for the new tasks that point at them.
pub(super) fn block_stored_runs(set: &EdgeSet, tasks: &[NewTask], stored: &Stored, now: Time) {
    let new: HashSet<TaskNo> = tasks.iter().map(|t| t.task_no).collect();
    let mut waits: BTreeMap<TaskNo, Waits> = BTreeMap::new();
    for edge in &set.edges {
        if !new.contains(&edge.run) {
            let wait = waits.entry(edge.run).or_default();
            wait.unsettled += 1;
            wait.all += 1;
        }
    }
    add_waits(&waits, &stored.live, now);
}

/// Adds dependencies to the counters of stored tasks, whose live rows this transaction has locked for a
/// change. A task that was ready, scheduled or parked and gets an unsettled one moves to `blocked`.
///
/// A task for which some of its dependencies suffice has them if nothing blocks it: it goes on without the new ones that are open.
pub(crate) fn add_waits(waits: &BTreeMap<TaskNo, Waits>, live: &HashMap<TaskNo, Live>, now: Time) {
    let mut raised: BTreeMap<Waits, Vec<TaskNo>> = BTreeMap::new();
    let (mut moved, mut others): (Vec<_>, Vec<(&Live, i32, i32)>) = Default::default();
    let (mut spared, mut not_needed): (Vec<(TaskNo, WaitNo, Waits)>, Vec<TaskNo>) = Default::default();
    let some_suffice = task::with_num_required(&waits.keys().copied().collect::<Vec<_>>());
    for (task_no, wait) in waits {
        let Some(row) = live.get(task_no) else { continue };
        let mut wait = *wait;
        // A suspended task waits for all that it is suspended for.
        let suspended = row.counter().is_some_and(|counter| counter.since.is_some());
        if some_suffice.contains_key(task_no) && !suspended {
            if let Some(counter) = row.counter() {
                spared.push((*task_no, counter.wait_no, wait));
                continue;
            }
            if wait.unsettled > 0 {
                not_needed.push(*task_no);
                wait = Waits { all: wait.all - wait.unsettled, unsettled: 0, ..wait };
            }
        }
        match row.place {
            Place::Blocked(_) => raised.entry(wait).or_default().push(*task_no),
            _ if wait.unsettled > 0 => {
                let (failures, dependencies) = (row.failures + wait.failed, row.dependencies + wait.all);
                moved.push((Live { failures, dependencies, ..row.clone() }, wait.unsettled, 0, FIRST_WAIT));
            }
            _ => others.push((row, wait.all, wait.failed)),
        }
    }
    for (wait, task_nos) in raised {
        blocked::RAISE.execute((task_nos, wait.unsettled, wait.all, wait.failed));
    }
    live::add(others.into_iter());
    if !not_needed.is_empty() {
        dependency::drop_open(not_needed);
    }
    block(moved);
    add_spared(spared, now);
}

/// Moves tasks to `blocked` that have something to wait for now: their rows with the numbers that they are to have, what remains, what
/// is to spare, and the number of the wait.
pub(crate) fn block(moved: Vec<(Live, i32, i32, WaitNo)>) {
    if moved.is_empty() {
        return;
    }
    live::remove(moved.iter().map(|(row, ..)| row));
    blocked::insert(moved.into_iter().map(|(row, remaining, spare, wait_no)| {
        // A time that a task was to wait for outlives its waiting for tasks. That of its workgroup is for a claim that
        // wants to grant it to ask, then: it may be another one.
        let not_before = match row.place {
            Place::Scheduled { due, held_back: false } => Some(due),
            _ => None,
        };
        let counter = Counter { remaining, spare, not_before, wait_no, since: None };
        blocked::New {
            failures: row.failures,
            dependencies: row.dependencies,
            tries: row.tries,
            ..blocked::New::of(row.task_no, None, counter)
        }
    }));
}

/// More dependencies of tasks for which some suffice: as many more to do without; then those that have ended are counted.
fn add_spared(spared: Vec<(TaskNo, WaitNo, Waits)>, now: Time) {
    let mut deltas = Deltas::new();
    for (task_no, wait_no, wait) in spared {
        blocked::SPARE_MORE.execute((vec![task_no], wait.all));
        let ended = wait.all - wait.unsettled;
        if ended > 0 {
            deltas.insert((task_no, wait_no), Delta::counted(ended - wait.lost, wait.lost, wait.failed));
        }
    }
    propagate_deltas(deltas, None, now);
}
