//! Which of the tasks of a call hold a key, and what they do to those that held it. Decided from what was looked up
//! and locked; nothing here asks the database, but for rights and the words of a refusal.

use std::collections::{HashMap, HashSet};

use super::call::Call;
use super::known::{Holder, Known};
use crate::error::{Refusal, Result};
use crate::input::{OnHeld, Reference, State};
use crate::insert::in_the_way;
use crate::insert::new::{Fate, NewTask};
use crate::insert::stored::Stored;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::rights;
use crate::state::{Condition, Outcome};
use crate::store::live::Place;
use crate::store::unique_key::Key;

/// A task that is to hold a key, and what it does to those that held it.
pub(super) struct Winner {
    /// Its place in the call, from 0.
    pub(super) element: usize,
    /// The stored tasks whose places it takes.
    pub(super) replaced: Vec<Holder>,
    /// The stored task with this key that it comes after: one that had begun (and may be pending again, and be replaced as well).
    pub(super) behind: Option<Holder>,
    /// It is not granted before the end of the period of that task.
    pub(super) not_before: Option<Time>,
    /// When the first of those that replaced each other was inserted; now, if it replaces none.
    pub(super) since: Time,
}

/// Which of the call's tasks with one key are inserted; the key is to point to the last of them. `gives_way`: an element
/// of the call, unless it is left out itself, takes the place of the stored task that has it.
pub(super) fn winners(
    key: &Key,
    known: &Known,
    tasks: &HashMap<usize, &NewTask>,
    gives_way: bool,
    call: &mut Call,
    left_out: &mut LeftOut,
) -> Result<Vec<Winner>> {
    let mut winners: Vec<Winner> = Vec::new();
    // Elements that are left out because of the last winner, which may yet be another one.
    let mut losers: Vec<usize> = Vec::new();
    // And those that are left out because of the stored task, whose place one that comes later may take.
    let mut behind_holder: Vec<usize> = Vec::new();
    for element in &known.elements {
        let task = tasks[element];
        let Some(unique) = task.spec.unique.as_deref() else { continue };
        if let Some(winner) = winners.last_mut() {
            let other = tasks[&winner.element];
            match beside(other, unique.on_conflict, key)? {
                Beside::Both => {
                    left_out.add(losers.drain(..).map(|loser| tasks[&loser]), &other.id);
                    winners.push(Winner::of(*element, call.now));
                }
                Beside::Other => losers.push(*element),
                // What the other was about to do, this one does.
                Beside::This => losers.push(std::mem::replace(&mut winner.element, *element)),
            }
            continue;
        }
        let holder = known.holder.as_ref().filter(|holder| {
            // One that gives way because of its id gives its key up as well.
            holder.holds(call.now) && !(call.by_id && (gives_way || holder.id == task.id))
        });
        match (holder, unique.on_conflict) {
            (None, _) => winners.push(Winner::of(*element, call.now)),
            (Some(holder), OnHeld::Error) => return Err(in_the_way::key_held(&key.0, &key.1, &holder.id)),
            (Some(_), OnHeld::Skip) => behind_holder.push(*element),
            (Some(holder), OnHeld::Replace) if !holder.state.is_pending() => {
                let fresh = Winner::of(*element, call.now);
                winners.push(Winner { behind: Some(holder.clone()), not_before: holder.until, ..fresh });
            }
            (Some(holder), OnHeld::Replace) => {
                rights::check_replacing()?;
                losers.append(&mut behind_holder);
                winners.push(in_place_of(holder, *element, task, known, call));
            }
        }
    }
    if let Some(holder) = &known.holder {
        left_out.add(behind_holder.into_iter().map(|element| tasks[&element]), &holder.id);
    }
    if let Some(winner) = winners.last() {
        left_out.add(losers.into_iter().map(|loser| tasks[&loser]), &tasks[&winner.element].id);
    }
    Ok(winners)
}

/// Which of two elements with one key are inserted.
enum Beside {
    Both,
    /// The one that came before.
    Other,
    /// The newest.
    This,
}

/// What becomes of an element that comes after `other`, which has its key.
fn beside(other: &NewTask, on_conflict: OnHeld, key: &Key) -> Result<Beside> {
    if !other.spec.unique.as_ref().is_some_and(|unique| unique.holds_while_pending()) {
        return Ok(Beside::Both);
    }
    match on_conflict {
        OnHeld::Error => {
            Err(Refusal::key_held(&key.0, &key.1, &other.id, "It is another element of this call."))
        }
        OnHeld::Skip => Ok(Beside::Other),
        OnHeld::Replace => Ok(Beside::This),
    }
}

/// An element that takes the place of the stored task that holds its key, which is pending.
fn in_place_of(holder: &Holder, element: usize, task: &NewTask, known: &Known, call: &Call) -> Winner {
    let mut replaced = vec![holder.clone()];
    // One that had begun and is pending again is older than both.
    replaced.extend(known.behind.iter().filter(|b| b.state.is_pending()).cloned());
    // The one before may have ended in a state in which it does not hold the key. Then its period holds up nothing.
    let over = known.behind.as_ref().is_some_and(|b| !b.state.is_in(b.states));
    // Nor does this task wait for one that it replaces by its id.
    let behind = known.behind.clone().filter(|b| !(call.by_id && b.id == task.id));
    Winner { element, replaced, behind, not_before: known.not_before.filter(|_| !over), since: known.since }
}

impl Winner {
    /// One that takes no other task's place, and comes after none.
    fn of(element: usize, now: Time) -> Self {
        Winner { element, replaced: Vec::new(), behind: None, not_before: None, since: now }
    }

    /// Gives the task its time and the one that it comes after.
    pub(super) fn apply(&self, task: &mut NewTask, call: &mut Call) {
        let Some(unique) = task.spec.unique.as_deref() else { return };
        if let (Some(max_wait), Some(not_before)) = (unique.max_wait, task.spec.not_before) {
            task.spec.not_before = Some(not_before.min(self.since.plus(max_wait)));
        }
        task.spec.not_before = task.spec.not_before.max(self.not_before.filter(|time| *time > call.now));
        if let Some(behind) = &self.behind {
            let known = task.spec.depends_on.iter().any(|r| r.id == behind.id);
            if behind.state == State::InProgress && !known {
                let reference = Reference::following(behind.id.clone(), Condition::Settled);
                task.spec.depends_on.push(reference);
            }
        }
        if let Some(holder) = self.replaced.first() {
            call.fates.insert(self.element, Fate::Replaced { existing: holder.id.clone() });
        } else if let Some(holder) = &self.behind {
            call.fates.insert(self.element, Fate::After { existing: holder.id.clone() });
        }
    }
}

/// Tasks of the call that are not inserted, and the ids of those that stand for them and for what they replace.
#[derive(Default)]
pub(super) struct LeftOut {
    elements: HashSet<usize>,
    /// By the id of the one left out or replaced.
    stands_for: HashMap<String, String>,
}

impl LeftOut {
    /// Whether the task is not inserted.
    pub(super) fn has(&self, task: &NewTask) -> bool {
        self.elements.contains(&task.element)
    }

    /// These tasks are not inserted: the one with this id stands for them.
    pub(super) fn add<'a>(&mut self, tasks: impl Iterator<Item = &'a NewTask>, id: &str) {
        for task in tasks {
            self.elements.insert(task.element);
            self.stands_for.insert(task.id.clone(), id.to_owned());
        }
    }

    /// What is stored under these ids goes, and this task comes in its place.
    pub(super) fn replace(&mut self, replaced: &[Holder], by: &NewTask) {
        for holder in replaced {
            self.stands_for.insert(holder.id.clone(), by.id.clone());
        }
    }

    /// Takes the tasks out of the call; dependencies that name them, or what is replaced, go to those that stand for them.
    pub(super) fn leave_out(&mut self, tasks: &mut Vec<NewTask>, call: &mut Call) {
        if self.stands_for.is_empty() {
            return;
        }
        tasks.retain(|task| {
            let out = self.elements.contains(&task.element);
            if out && let Some(existing) = self.stands_for.get(&task.id) {
                call.fates.insert(task.element, Fate::Skipped { existing: existing.clone() });
            }
            !out
        });
        // A task that is inserted with an id is meant by it.
        tasks.iter().for_each(|task| drop(self.stands_for.remove(&task.id)));
        for task in tasks {
            for references in [&mut task.spec.depends_on, &mut task.spec.to_signal_after] {
                references.retain_mut(|reference| match self.stands_for.get(&reference.id) {
                    None => true,
                    // What was to come after a task that it stands for now.
                    Some(other) if *other == task.id => false,
                    Some(other) => {
                        reference.id.clone_from(other);
                        true
                    }
                });
            }
        }
    }
}

/// A holder as its locked row shows it; `None` if the task is gone.
///
/// A rider has begun with its leader: what it would do is being done, by a worker that may have seen an older state.
pub(super) fn as_locked(
    holder: Holder,
    stored: &Stored,
    riding: &HashSet<TaskNo>,
    now: Time,
) -> Option<Holder> {
    if stored.numbers.get(&holder.id) != Some(&holder.task_no) {
        return None;
    }
    let state = match (stored.live.get(&holder.task_no), stored.outcomes.get(&holder.task_no)) {
        (Some(row), _) => match row.place {
            Place::Run { .. } if row.in_progress() => State::InProgress,
            _ if riding.contains(&holder.task_no) => State::InProgress,
            Place::Blocked(_) => State::Blocked,
            Place::Scheduled { due, .. } if due > now => State::Scheduled,
            _ if holder.held_back => State::Scheduled,
            _ => State::Ready,
        },
        (None, Some(Outcome::Completed)) => State::Completed,
        (None, Some(Outcome::Aborted | Outcome::Skipped)) => State::Aborted,
        (None, None) => return None,
    };
    Some(Holder { state, ..holder })
}
