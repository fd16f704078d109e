//! The stored tasks that a call names: found, and locked.

use std::collections::{HashMap, HashSet};

use super::new::NewTask;
use crate::error::{Refusal, Result};
use crate::input::Reference;
use crate::locks::{self, Idle, LockStrength, guard};
use crate::number::TaskNo;
use crate::rights;
use crate::settle::fold;
use crate::state::Outcome;
use crate::store::live::Live;

/// What a call knows of the stored tasks that it refers to.
pub(crate) struct Stored {
    /// Of those that are there, by id.
    pub(super) numbers: HashMap<String, TaskNo>,
    /// The rows of those that have not settled, locked.
    pub(super) live: HashMap<TaskNo, Live>,
    /// How the others ended.
    pub(super) outcomes: HashMap<TaskNo, Outcome>,
    /// Ids that the call's dependencies name, as opposed to ids it replaces.
    referred: HashSet<String>,
    guarded: bool,
}

/// Finds and locks the stored tasks that a call names. If its tasks are only to wait for them, they are locked against
/// settling. If some are to wait for its tasks, are replaced or are watched, all that have not settled are locked
/// against any change.
///
/// A call that links stored tasks in both directions may close a cycle through them and takes the graph
/// guard first, unless it is of a caller who may not have stored tasks wait. (Edges only from stored tasks to new ones, or only
/// from new ones to stored, cannot: a new task then has no way in or no way out.)
///
/// What a dependency names is a task that the call does not insert, or what `stand_ins` has for an id of the call.
/// `watched` are tasks that hold keys of new ones, or held them before: they may be replaced, and dependencies may come
/// to name them.
pub(super) fn lock_stored(
    tasks: &[&NewTask],
    stand_ins: &HashMap<&str, Vec<&str>>,
    replaced: &[&str],
    watched: &[String],
) -> Result<Stored> {
    let mut inside: HashSet<&str> = HashSet::new();
    if tasks.iter().any(|task| task.references().next().is_some()) {
        inside.extend(tasks.iter().map(|task| task.id.as_str()));
    }
    let named = |list: fn(&NewTask) -> &Vec<Reference>| -> HashSet<String> {
        let ids = || tasks.iter().flat_map(|task| list(task)).map(|reference| reference.id.as_str());
        let stand_ins = ids().filter_map(|id| stand_ins.get(id)).flatten().copied();
        ids().filter(|id| !inside.contains(id)).chain(stand_ins).map(str::to_owned).collect()
    };
    let waited_for = named(|t| &t.spec.depends_on);
    let leads_out =
        |task: &&NewTask| task.spec.to_signal_after.iter().any(|r| !inside.contains(r.id.as_str()));
    if tasks.iter().any(leads_out) {
        rights::check_blocking()?;
    }
    // What one of the call only stands for is refused where it comes to that: such a caller locks nothing for it.
    let signalled = if rights::may_block() { named(|t| &t.spec.to_signal_after) } else { HashSet::new() };
    let both_ways = (!waited_for.is_empty() && !signalled.is_empty())
        || (!watched.is_empty() && tasks.iter().any(|t| !t.spec.to_signal_after.is_empty()));
    let guarded = both_ways && rights::may_block();
    // Those with a unique key may yet be left out, and so may all but the first with one id.
    let mut seen: HashSet<&str> = HashSet::new();
    let differ = inside.is_empty() || inside.len() == tasks.len();
    let firsts: Vec<&NewTask> =
        tasks.iter().copied().filter(|task| differ || seen.insert(&task.id)).collect();
    let plain = || firsts.iter().filter(|task| task.spec.unique.is_none());
    let by_plain = plain().flat_map(|task| &task.spec.to_signal_after).map(|other| other.id.as_str());
    let replaced_by_plain =
        if replaced.is_empty() { vec![] } else { plain().map(|t| t.id.as_str()).collect() };
    let idle = [
        Idle { ids: by_plain.filter(|id| !inside.contains(id)).collect(), refusal: has_begun },
        Idle { ids: replaced_by_plain, refusal: is_replaced },
    ];
    idle.iter().try_for_each(Idle::look)?;
    if guarded {
        guard();
    }
    let referred: HashSet<String> = waited_for.union(&signalled).chain(watched).cloned().collect();
    // No task stands twice.
    let ids: HashSet<&str> = referred.iter().map(String::as_str).chain(replaced.iter().copied()).collect();
    // Those that are missing as well: what has come by the time the others are locked is found, and locked.
    let ids: Vec<String> = ids.into_iter().map(str::to_owned).collect();
    let (numbers, live, outcomes) = Default::default();
    let mut stored = Stored { numbers, live, outcomes, referred, guarded };
    if signalled.is_empty() && replaced.is_empty() && watched.is_empty() {
        stored.lock(&ids, &idle, LockStrength::KeyShare, LockStrength::KeyShare)?;
        return Ok(stored);
    }
    // What is replaced by its id goes, also if it is settled.
    let of_settled = if replaced.is_empty() { LockStrength::KeyShare } else { LockStrength::Update };
    // If all that such a task waits for has ended, it has ended before.
    let lock = || {
        stored.lock(&ids, &idle, LockStrength::Update, of_settled)?;
        Ok(std::mem::take(&mut stored.live))
    };
    let live = fold::locked(lock, |live| live)?;
    Ok(Stored { live, ..stored })
}

impl Stored {
    fn lock(
        &mut self,
        ids: &[String],
        idle: &[Idle],
        strength: LockStrength,
        of_settled: LockStrength,
    ) -> Result<()> {
        if !ids.is_empty() {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            (self.numbers, self.live, self.outcomes) = locks::lock_any(&ids, idle, strength, of_settled)?;
        }
        Ok(())
    }

    /// Looks again where the tasks are; their rows, or the rows that took their place, are ours already.
    pub(super) fn refresh(&mut self) -> Result<()> {
        let ids: Vec<String> = self.numbers.keys().cloned().collect();
        self.lock(&ids, &[], LockStrength::Update, LockStrength::KeyShare)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The ids that dependencies name and of which there is no task.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        self.referred.iter().map(String::as_str).filter(|id| !self.numbers.contains_key(*id))
    }

    /// Whether a task that dependencies lead to is there, and is not about to be removed.
    pub(super) fn has(&self, task_no: TaskNo) -> bool {
        self.live.contains_key(&task_no) || self.outcomes.contains_key(&task_no)
    }

    /// The number of a stored task that a dependency names; `None` if it is gone.
    pub(super) fn find(&self, id: &str) -> Option<TaskNo> {
        let number = *self.numbers.get(id).filter(|_| self.referred.contains(id))?;
        self.has(number).then_some(number)
    }

    /// Whether the call may close cycles through stored tasks, and has the guard.
    pub(super) fn guarded(&self) -> bool {
        self.guarded
    }

    /// Forgets a task that this call removes.
    pub(crate) fn forget(&mut self, id: &str) -> Option<(TaskNo, Option<Live>)> {
        let number = self.numbers.remove(id)?;
        self.outcomes.remove(&number);
        Some((number, self.live.remove(&number)))
    }
}

/// What is said of a task in progress that is to get a dependency.
pub(crate) fn has_begun(id: &str) -> Refusal {
    cannot_wait(id, "in progress")
}

/// What is said of a task in this state that is to get a dependency.
pub(super) fn cannot_wait(id: &str, state: &str) -> Refusal {
    let hint = "Only a pending task that no worker owns can get a dependency.";
    Refusal::state(id, state, "cannot be made to wait", hint)
}

/// What is said of a task in progress that is to be replaced.
pub(super) fn is_replaced(id: &str) -> Refusal {
    locks::held(id, "cannot be replaced", "Wait until it is returned, or cancel it first.")
}
