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
    // And those that are left out because of a stored task, whose place one that comes later may take.
    let mut behind_holder: Vec<(usize, &str)> = Vec::new();
    // Where the last one does not hold the key, or gives it up, the one that it came behind may.
    let last = known.holder.as_ref().filter(|holder| holder.holds(call.now) && !(call.by_id && gives_way));
    let holder = last.or(known.behind.as_ref().filter(|behind| behind.holds(call.now)));
    for element in &known.elements {
        let task = tasks[element];
        let Some(unique) = task.spec.unique.as_deref() else { continue };
        let stored = match winners.last_mut() {
            None => holder,
            Some(winner) => {
                let other = tasks[&winner.element];
                match beside(winner, other, unique.on_conflict, key, call.now)? {
                    Beside::Both => {
                        left_out.add(losers.drain(..).map(|loser| tasks[&loser]), &other.id);
                        let behind = winner.behind.as_ref().map(|behind| behind.task_no);
                        known.stored().find(|h| Some(h.task_no) == behind && h.holds(call.now))
                    }
                    Beside::Other => {
                        losers.push(*element);
                        continue;
                    }
                    // What the other was about to do, this one does.
                    Beside::This => {
                        losers.push(std::mem::replace(&mut winner.element, *element));
                        continue;
                    }
                }
            }
        };
        match against(stored, *element, task, unique.on_conflict, key, known, call)? {
            Against::Wins(winner) => winners.push(winner),
            Against::TakesItsPlace(winner) => {
                rights::check_replacing()?;
                losers.extend(behind_holder.drain(..).map(|(element, _)| element));
                winners.push(winner);
            }
            Against::IsLeftOutFor(id) => behind_holder.push((*element, id)),
        }
    }
    for (element, holder) in behind_holder {
        left_out.add(std::iter::once(tasks[&element]), holder);
    }
    if let Some(winner) = winners.last() {
        left_out.add(losers.into_iter().map(|loser| tasks[&loser]), &tasks[&winner.element].id);
    }
    Ok(winners)
}

/// What becomes of an element whose key a stored task holds, or none.
enum Against<'a> {
    /// It is inserted.
    Wins(Winner),
    /// And what came before it in the call is left out for its sake, not for that of the stored task.
    TakesItsPlace(Winner),
    /// It is left out for the sake of the task with this id.
    IsLeftOutFor(&'a str),
}

fn against<'a>(
    holder: Option<&'a Holder>,
    element: usize,
    task: &NewTask,
    on_conflict: OnHeld,
    key: &Key,
    known: &Known,
    call: &Call,
) -> Result<Against<'a>> {
    let Some(holder) = holder else { return Ok(Against::Wins(Winner::of(element, call.now))) };
    let is_pending = holder.state.is_pending();
    if call.by_id && holder.id == task.id {
        // It takes the place of that one, whatever its key says. If it turns out that another element has the key, so does that.
        return Ok(Against::Wins(match is_pending {
            true => in_place_of(holder, element, task, known, on_conflict == OnHeld::Replace, call),
            false => Winner::behind(holder, element, call.now),
        }));
    }
    match on_conflict {
        OnHeld::Error => Err(in_the_way::key_held(&key.0, &key.1, &holder.id)),
        OnHeld::Skip => Ok(Against::IsLeftOutFor(&holder.id)),
        OnHeld::Replace if is_pending => {
            Ok(Against::TakesItsPlace(in_place_of(holder, element, task, known, true, call)))
        }
        OnHeld::Replace => Ok(Against::Wins(Winner::behind(holder, element, call.now))),
    }
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
fn beside(winner: &Winner, other: &NewTask, on_conflict: OnHeld, key: &Key, now: Time) -> Result<Beside> {
    if !holds_once_inserted(winner, other, now) {
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

/// Whether the winner holds the key in the state that it will be in. Where that is not known yet, in some state of those that are
/// pending.
fn holds_once_inserted(winner: &Winner, task: &NewTask, now: Time) -> bool {
    let Some(unique) = task.spec.unique.as_deref() else { return false };
    let spec = &task.spec;
    let may_wait = !spec.depends_on.is_empty() || winner.behind.is_some() || spec.spontaneous || spec.signal;
    if may_wait || spec.group.is_some() || spec.workgroup.is_some() {
        return unique.holds_while_pending();
    }
    let due = spec.not_before.max(winner.not_before);
    let state = if due.is_some_and(|due| due > now) { State::Scheduled } else { State::Ready };
    state.is_in(unique.states)
}

/// An element that takes the place of the stored task that holds its key, which is pending. `both`: and of the one before, if that is
/// pending, too.
fn in_place_of(
    holder: &Holder,
    element: usize,
    task: &NewTask,
    known: &Known,
    both: bool,
    call: &Call,
) -> Winner {
    let mut replaced = vec![holder.clone()];
    let before = known.behind.as_ref().filter(|behind| behind.task_no != holder.task_no);
    // One that had begun and is pending again is older than both.
    replaced.extend(before.filter(|b| both && b.state.is_pending()).cloned());
    // The one before may have ended in a state in which it does not hold the key. Then its period holds up nothing.
    let over = before.is_none_or(|b| !b.state.is_in(b.states));
    // Nor does this task wait for one that it replaces by its id.
    let behind = before.cloned().filter(|b| !(call.by_id && b.id == task.id));
    Winner { element, replaced, behind, not_before: known.not_before.filter(|_| !over), since: known.since }
}

impl Winner {
    /// One that takes no other task's place, and comes after none.
    fn of(element: usize, now: Time) -> Self {
        Winner { element, replaced: Vec::new(), behind: None, not_before: None, since: now }
    }

    /// One that comes after a stored task that has begun.
    fn behind(holder: &Holder, element: usize, now: Time) -> Self {
        Winner { behind: Some(holder.clone()), not_before: holder.until, ..Winner::of(element, now) }
    }

    /// Gives the task its time and the one that it comes after.
    pub(super) fn apply(&self, task: &mut NewTask, call: &mut Call) {
        let Some(unique) = task.spec.unique.as_deref() else { return };
        // One that takes the place of the stored task with its id does not come after that.
        let before = self.behind.as_ref().filter(|behind| behind.id != task.id);
        let not_before = if self.behind.is_some() && before.is_none() { None } else { self.not_before };
        if let (Some(max_wait), Some(not_before)) = (unique.max_wait, task.spec.not_before) {
            task.spec.not_before = Some(not_before.min(self.since.plus(max_wait)));
        }
        task.spec.not_before = task.spec.not_before.max(not_before.filter(|time| *time > call.now));
        if let Some(behind) = before {
            let known = task.spec.depends_on.iter().any(|r| r.id == behind.id);
            if behind.state == State::InProgress && !known {
                let reference = Reference::following(behind.id.clone(), Condition::Settled);
                task.spec.depends_on.push(reference);
            }
        }
        if let Some(holder) = self.replaced.first() {
            call.fates.insert(self.element, Fate::Replaced { existing: holder.id.clone() });
        } else if let Some(holder) = before {
            call.fates.insert(self.element, Fate::After { existing: holder.id.clone() });
        }
    }
}

/// Tasks of the call that are not inserted, and the ids of those that stand for them and for what they replace.
#[derive(Default)]
pub(super) struct LeftOut {
    /// The ids of those that stand for elements.
    elements: HashMap<usize, String>,
    /// The same by their ids.
    left: HashMap<String, String>,
    /// The ids of those that take the places of stored tasks, by the ids of these.
    replaced: HashMap<String, String>,
}

impl LeftOut {
    /// Whether the task is not inserted.
    pub(super) fn has(&self, task: &NewTask) -> bool {
        self.elements.contains_key(&task.element)
    }

    /// These tasks are not inserted: the one with this id stands for them.
    pub(super) fn add<'a>(&mut self, tasks: impl Iterator<Item = &'a NewTask>, id: &str) {
        for task in tasks {
            self.elements.insert(task.element, id.to_owned());
            self.left.insert(task.id.clone(), id.to_owned());
        }
    }

    /// What is stored under these ids goes, and this task comes in its place.
    pub(super) fn replace(&mut self, replaced: &[Holder], by: &NewTask) {
        for holder in replaced {
            self.replaced.insert(holder.id.clone(), by.id.clone());
        }
    }

    /// Takes the tasks out of the call; dependencies that name them, or what is replaced, go to those that stand for them.
    pub(super) fn leave_out(&mut self, tasks: &mut Vec<NewTask>, call: &mut Call) {
        if self.left.is_empty() && self.replaced.is_empty() {
            return;
        }
        if call.skips {
            // An element with the id of one that is left out stands for the same.
            for fate in call.fates.values_mut() {
                if let Fate::Skipped { existing } = fate
                    && let Some(other) = self.left.get(existing)
                {
                    existing.clone_from(other);
                }
            }
        }
        tasks.retain(|task| {
            let existing = self.elements.get(&task.element);
            if let Some(existing) = existing {
                call.fates.insert(task.element, Fate::Skipped { existing: existing.clone() });
            }
            existing.is_none()
        });
        // An id means a task that is inserted with it, or else the one that it was given to and that is left out, or else a stored one.
        for task in tasks.iter() {
            self.replaced.remove(&task.id);
        }
        let stands_for = |id: &String| self.left.get(id).or_else(|| self.replaced.get(id));
        for task in tasks {
            for references in [&mut task.spec.depends_on, &mut task.spec.to_signal_after] {
                references.retain_mut(|reference| match stands_for(&reference.id) {
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
