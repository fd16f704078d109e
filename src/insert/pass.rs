//! Going through the elements of a call, once and in their order: each is asked for its id, then for its key, as if it came alone
//! behind those before it. What has been found out goes by numbers: an id may mean a stored task and an element.
//!
//! Nothing here waits or asks the database, except for rights and the words of a refusal: all that it goes by is known, and stays as it is
//! ([`ground`](super::ground)). Whether an id is free, too: of those that may be inserted the row is written, or the stored task is locked.

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
    /// The stored tasks that the call names, locked. Those with ids of elements are among them.
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
    /// The elements that are not inserted.
    pub(super) out: Vec<NewTask>,
    /// The tasks whose times have changed.
    pub(super) put_off: HashSet<TaskNo>,
}

impl Came {
    /// What an id means, of which no task is inserted: one that stands for it, if there is one.
    pub(super) fn meaning(&self, id: &str) -> Option<TaskNo> {
        self.means.get(id).or_else(|| self.replaced.get(id)).map(|task_no| self.last(*task_no))
    }

    /// The elements that others have taken the places of, the last one first, with these.
    pub(super) fn succeeded(&self) -> impl Iterator<Item = (&NewTask, TaskNo)> {
        let successor = |task: &NewTask| self.successors.get(&task.task_no).map(|_| self.last(task.task_no));
        self.out.iter().rev().filter_map(move |task| Some((task, successor(task)?)))
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
    /// All ids of the call, and which elements are to come before those with them. Filled where there are keys and dependencies.
    ids: HashSet<String>,
    before: HashMap<String, Vec<Namer>>,
}

/// An element that another one is to run after.
struct Namer {
    element: usize,
    task_no: TaskNo,
    /// `None` if it is made up.
    id: Option<String>,
}

/// Goes through the elements; those are left that are inserted.
pub(super) fn go(tasks: &mut Vec<NewTask>, keys: &mut Keys, fates: &mut Fates, call: &Call) -> Result<Came> {
    let (came, inserted, ended) = Default::default();
    let (mut ids, mut before) = (HashSet::new(), HashMap::<String, Vec<Namer>>::new());
    let keyed = !keys.is_empty();
    if keyed && tasks.iter().any(|task| task.references().next().is_some()) {
        ids.extend(tasks.iter().map(|task| task.id.clone()));
        for task in tasks.iter() {
            for other in &task.spec.to_signal_after {
                let id = if task.id_is_new { None } else { Some(task.id.clone()) };
                let namer = Namer { element: task.element, task_no: task.task_no, id };
                before.entry(other.id.clone()).or_default().push(namer);
            }
        }
    }
    let mut pass = Pass { call, came, fates, keyed, inserted, ended, ids, before };
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
    came.out = out;
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
        inserted.or_else(|| self.call.stored.numbers.get(id).copied().filter(is_there))
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

    /// Whether another element is to come before this one: one that is in, or that may yet be.
    fn is_preceded(&self, task: &NewTask) -> bool {
        let skips = self.call.options.on_conflict == OnConflict::Skip;
        let is_out = |task_no: &TaskNo| {
            matches!(self.fates.of.get(task_no), Some(Fate::Skipped(_)))
                && !self.came.successors.contains_key(task_no)
        };
        let is_there = |id: &Option<String>| id.as_ref().is_some_and(|id| self.with_id(id).is_some());
        let comes = |namer: &Namer| match namer.element < task.element {
            true => !is_out(&namer.task_no),
            false => !(skips && is_there(&namer.id)),
        };
        self.before.get(&task.id).is_some_and(|before| before.iter().any(comes))
    }

    /// The state that an element will be in; for those that come after it, noted if it is settled from the start. What comes later in the
    /// array has not settled.
    fn note_end(&mut self, task: &NewTask, follows: bool) -> States {
        if !self.keyed {
            return States::default();
        }
        let others = i32::from(follows) + i32::from(self.is_preceded(task));
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
