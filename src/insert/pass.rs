//! Going through the elements of a call, once and in their order: each is asked for its id, then for its key, as if it came alone
//! behind those before it. What has been found out goes by numbers: an id may mean a stored task and an element.
//!
//! Nothing here waits or asks the database, except for rights and the words of a refusal. The keys are locked, and so is what is stored of
//! the tasks that matter. Where it matters for those that come later whether an element's id is free (`on_conflict => 'skip'`), its row
//! has been written: no other transaction can take the id any more, and what others have taken is known.

use std::collections::{HashMap, HashSet};

use super::in_the_way;
use super::new::{Fate, Fates, NewTask};
use super::options::{OnConflict, Options};
use super::stored::Stored;
use super::unique::{Holder, Keys, Turn, Verdict};
use super::waits::{Standing, Waits};
use crate::error::Result;
use crate::input::States;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::state::Outcome;

/// The call whose elements are gone through.
pub(super) struct Call<'a> {
    /// The time by which periods are over.
    pub(super) now: Time,
    /// What becomes of elements whose ids are there.
    pub(super) options: Options,
    /// The ids of elements that stored tasks have, with the numbers of these.
    pub(super) taken: HashMap<String, TaskNo>,
    /// The stored tasks that dependencies lead to, locked.
    pub(super) stored: &'a Stored,
}

/// What the elements have come to.
#[derive(Default)]
pub(super) struct Came {
    /// Ids of elements that are not inserted, and what they mean.
    means: HashMap<String, TaskNo>,
    /// Who has taken whose place.
    successors: HashMap<TaskNo, TaskNo>,
    /// The stored tasks whose places are taken, by id.
    pub(super) replaced: HashMap<String, TaskNo>,
    /// The tasks in progress that tasks come after for their keys, and these.
    pub(super) follows: Vec<(TaskNo, TaskNo)>,
    /// The ids of elements that are not inserted, of which it is not known whether other transactions have taken them.
    pub(super) out: Vec<String>,
    /// The tasks whose times have changed.
    pub(super) put_off: HashSet<TaskNo>,
}

impl Came {
    /// What an id means, of which no task is inserted: one that stands for it, if there is one.
    pub(super) fn meaning(&self, id: &str) -> Option<TaskNo> {
        self.means.get(id).or_else(|| self.replaced.get(id)).map(|task_no| self.last(*task_no))
    }

    /// The task that has the place of this one in the end.
    pub(super) fn last(&self, mut task_no: TaskNo) -> TaskNo {
        // No circle: a successor is always an element that comes later in the call.
        while let Some(successor) = self.successors.get(&task_no) {
            task_no = *successor;
        }
        task_no
    }
}

/// The elements before the one that is asked.
struct Pass<'a> {
    call: &'a Call<'a>,
    came: Came,
    fates: &'a mut Fates,
    /// There are keys.
    keyed: bool,
    /// The ids of those that are in.
    inserted: HashMap<String, TaskNo>,
    /// How those end that are settled from the start.
    ended: HashMap<TaskNo, Outcome>,
    /// All ids of the call, and those that some element is to come before. Filled where there are keys and dependencies.
    ids: HashSet<String>,
    preceded: HashSet<String>,
}

/// Goes through the elements; those are left that are inserted.
pub(super) fn go(tasks: &mut Vec<NewTask>, keys: &mut Keys, fates: &mut Fates, call: &Call) -> Result<Came> {
    let (came, inserted, ended) = Default::default();
    let (mut ids, mut preceded) = (HashSet::new(), HashSet::new());
    let keyed = !keys.is_empty();
    if keyed && tasks.iter().any(|task| task.references().next().is_some()) {
        ids.extend(tasks.iter().map(|task| task.id.clone()));
        preceded.extend(tasks.iter().flat_map(|task| &task.spec.to_signal_after).map(|r| r.id.clone()));
    }
    let mut pass = Pass { call, came, fates, keyed, inserted, ended, ids, preceded };
    for task in tasks.iter_mut() {
        pass.ask(task, keys)?;
    }
    let Pass { mut came, fates, .. } = pass;
    let is_in = |task_no: &TaskNo| !matches!(fates.of.get(task_no), Some(Fate::Skipped(_)));
    came.follows.retain(|(_, run)| is_in(run));
    let (new, out): (Vec<NewTask>, Vec<NewTask>) =
        std::mem::take(tasks).into_iter().partition(|t| is_in(&t.task_no));
    *tasks = new;
    // Of many that have replaced each other each is a step from the last.
    for task in out.iter().rev() {
        let next = came.successors.get(&task.task_no).and_then(|next| came.successors.get(next)).copied();
        came.successors.extend(next.map(|last| (task.task_no, last)));
    }
    // With "skip" it is known of all ids whether they are taken. One that its key leaves out replaces no task by its id.
    let is_open = |task: &NewTask| match call.options.on_conflict {
        OnConflict::Error => !task.id_is_new,
        OnConflict::Replace => !task.id_is_new && came.successors.contains_key(&task.task_no),
        OnConflict::Skip => false,
    };
    came.out = out.into_iter().filter(is_open).map(|task| task.id).collect();
    Ok(came)
}

impl Pass<'_> {
    fn ask(&mut self, task: &mut NewTask, keys: &mut Keys) -> Result<()> {
        let mode = self.call.options.on_conflict;
        let taken = if task.id_is_new { None } else { self.with_id(&task.id) };
        if let (Some(existing), OnConflict::Skip) = (taken, mode) {
            self.leave_out(task, existing, &task.id);
            return Ok(());
        }
        let gives_way = taken.filter(|_| mode == OnConflict::Replace);
        let gone = |task_no| self.came.successors.contains_key(&task_no);
        let turn = match keys.ask(task, gives_way, gone, self.call.now)? {
            Some(Verdict::Out(holder)) => {
                self.refuse_taken(task, taken, &[])?;
                self.leave_out(task, holder.task_no, &holder.id);
                return Ok(());
            }
            Some(Verdict::In(turn)) => Some(turn),
            None => None,
        };
        self.refuse_taken(task, taken, turn.as_ref().map_or(&[], |turn| &turn.replaced))?;
        if let Some(existing) = gives_way {
            self.fates.set(task.task_no, Fate::Replaced(existing), &task.id);
            self.give_way(existing, &task.id, task.task_no);
        }
        match turn {
            Some(turn) => self.take_turn(task, turn, keys),
            None => _ = self.note_end(task, false),
        }
        if !task.id_is_new {
            self.inserted.insert(task.id.clone(), task.task_no);
        }
        Ok(())
    }

    /// The task that has this id now.
    fn with_id(&self, id: &str) -> Option<TaskNo> {
        let is_there = |task_no: &TaskNo| !self.came.successors.contains_key(task_no);
        let inserted = self.inserted.get(id).copied().filter(is_there);
        inserted.or_else(|| self.call.taken.get(id).copied().filter(is_there))
    }

    /// `TQ002`, unless the task with its id is one whose place the element takes.
    fn refuse_taken(&self, task: &NewTask, taken: Option<TaskNo>, replaced: &[Holder]) -> Result<()> {
        match taken.filter(|_| self.call.options.on_conflict == OnConflict::Error) {
            Some(taken) if replaced.iter().all(|holder| holder.task_no != taken) => {
                Err(in_the_way::exists(&task.id, 0))
            }
            _ => Ok(()),
        }
    }

    fn leave_out(&mut self, task: &NewTask, existing: TaskNo, id: &str) {
        self.fates.set(task.task_no, Fate::Skipped(existing), id);
        self.came.means.entry(task.id.clone()).or_insert(existing);
    }

    /// A stored task gives way.
    fn give_way(&mut self, task_no: TaskNo, id: &str, by: TaskNo) {
        self.came.successors.insert(task_no, by);
        self.came.replaced.insert(id.to_owned(), task_no);
    }

    /// The element has its key: what that does to others, and to itself.
    fn take_turn(&mut self, task: &mut NewTask, turn: Turn, keys: &mut Keys) {
        let Some(unique) = task.spec.unique.as_deref() else { return };
        let Turn { replaced, behind, not_before, since } = &turn;
        let before = task.spec.not_before;
        if let (Some(max_wait), Some(due)) = (unique.max_wait, before) {
            task.spec.not_before = Some(due.min(since.plus(max_wait)));
        }
        task.spec.not_before = task.spec.not_before.max(not_before.filter(|time| *time > self.call.now));
        if task.spec.not_before != before {
            self.came.put_off.insert(task.task_no);
        }
        let mut fate = behind.as_ref().map(|behind| (Fate::After(behind.task_no), behind.id.as_str()));
        for holder in replaced.iter().rev() {
            let replaces = Some((Fate::Replaced(holder.task_no), holder.id.as_str()));
            fate = if holder.in_call {
                // What that was about to do, this one does.
                let its = self.fates.set(holder.task_no, Fate::Skipped(task.task_no), &task.id);
                self.came.successors.insert(holder.task_no, task.task_no);
                self.came.means.entry(holder.id.clone()).or_insert(holder.task_no);
                its.filter(|its| matches!(its, Fate::Replaced(_))).map(|its| (its, "")).or(fate)
            } else if self.came.successors.contains_key(&holder.task_no) {
                // By its id.
                replaces
            } else {
                self.give_way(holder.task_no, &holder.id, task.task_no);
                replaces
            };
        }
        if let Some((fate, id)) = fate.filter(|_| !self.fates.of.contains_key(&task.task_no)) {
            self.fates.set(task.task_no, fate, id);
        }
        let follows = behind.as_ref().filter(|behind| behind.state == States::IN_PROGRESS);
        self.came.follows.extend(follows.map(|behind| (behind.task_no, task.task_no)));
        let state = self.note_end(task, follows.is_some());
        let until = unique.until(task.spec.not_before, self.call.now);
        let holder = Holder {
            task_no: task.task_no,
            id: task.id.clone(),
            until,
            states: unique.states,
            state,
            held_back: false,
            may_ride: false,
            locked: false,
            in_call: true,
        };
        keys.take(task, holder, &turn);
    }

    /// The state that an element will be in; for those that come after it, noted if it is settled from the start. What comes later in the
    /// array has not settled.
    fn note_end(&mut self, task: &NewTask, follows: bool) -> States {
        if !self.keyed {
            return States::default();
        }
        let others = i32::from(follows) + i32::from(self.preceded.contains(&task.id));
        let mut waits = Waits { all: others, unsettled: others, ..Waits::default() };
        for reference in &task.spec.depends_on {
            let id = reference.id.as_str();
            let other = self.inserted.get(id).map(|other| self.came.last(*other));
            let comes = self.ids.contains(id) && !self.came.means.contains_key(id);
            let skips = self.call.options.on_conflict == OnConflict::Skip;
            let is_later = other.is_none() && comes && !(skips && self.with_id(id).is_some());
            let stored = || self.came.meaning(id).or_else(|| self.call.stored.find(id));
            let other = if is_later { None } else { other.or_else(stored) };
            if other.is_none() && self.call.options.ignore_missing && !is_later {
                continue;
            }
            let end =
                other.and_then(|other| self.ended.get(&other).or(self.call.stored.outcomes.get(&other)));
            waits.all += 1;
            waits.count(other.unwrap_or(TaskNo::NONE), reference.condition, end.copied());
        }
        let scheduled = task.spec.not_before.is_some_and(|due| due > self.call.now);
        let state = match waits.standing(task.spec.wants()) {
            Standing::Lost => States::ABORTED,
            Standing::Waiting { .. } => States::BLOCKED,
            Standing::Free if scheduled => States::SCHEDULED,
            Standing::Free if task.spec.spontaneous => States::COMPLETED,
            // It may be held back.
            Standing::Free if task.spec.workgroup.is_some() => States(States::SCHEDULED.0 | States::READY.0),
            Standing::Free => States::READY,
        };
        let end = match state {
            States::ABORTED => Some(Outcome::Aborted),
            States::COMPLETED => Some(Outcome::Completed),
            _ => None,
        };
        self.ended.extend(end.map(|end| (task.task_no, end)));
        state
    }
}
