//! What a call stands on: all that is stored of what it names, looked at, locked and waited for.
//!
//! **What was read before a wait is not believed after it.** A call waits for stored tasks, for ids that another transaction is inserting
//! or removing, and for rows of merge keys. Meanwhile others may insert what was missing, or remove, replace or settle the task for whose
//! sake an element was to be left out; and the call comes after those for whose end it has waited. So it goes in rounds: it looks, locks the
//! stored tasks that it names, inserts the rows whose ids may turn out to be taken, makes the rows of merge keys, and looks once more at
//! all that it goes by and has not locked. If nothing has changed, there was a moment between the two looks at which all of it held: then
//! what was missing was missing, what is locked stays as it is, and of the ids that are written no other transaction has any. That
//! moment is the place of the call among the transactions. If something has changed, there is another round.
//!
//! What is waited for later (dependencies of tasks that are replaced) tells the call nothing: it comes before the transactions that it
//! waits for there.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::new::NewTask;
use super::options::{OnConflict, Options};
use super::stored::{Stored, lock_stored};
use super::unique::Keys;
use super::{in_the_way, rows};
use crate::error::Result;
use crate::locks::{self, Rank};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::store::reason::MergeKey;
use crate::store::{merge_key, numbers};

/// What a call stands on.
pub(super) struct Ground {
    /// The stored tasks that it names, locked.
    pub(super) stored: Stored,
    /// Of each element, by its place: whether its row is written.
    pub(super) written: Vec<bool>,
    /// The stored tasks for which elements with their ids are left out, by id.
    pub(super) there: HashMap<String, TaskNo>,
}

/// The rounds of a call.
struct Rounds<'a> {
    tasks: &'a [NewTask],
    options: Options,
    now: Time,
    written: Vec<bool>,
    /// Tasks with ids of elements, as they were seen last; those that are locked may be missing, and no id is here whose row is written.
    seen: HashMap<String, TaskNo>,
}

/// What a round has come to.
struct Round {
    stored: Stored,
    /// It has locked or inserted something, or may have waited for something else.
    waited: bool,
    /// Some ids were taken.
    refused: bool,
}

/// Goes in rounds until nothing has changed. The keys are locked; `tasks` are all elements.
pub(super) fn reach(tasks: &[NewTask], options: Options, now: Time, keys: &mut Keys) -> Result<Ground> {
    let mut rounds = Rounds { tasks, options, now, written: vec![false; tasks.len()], seen: HashMap::new() };
    if options.on_conflict == OnConflict::Skip {
        // What is there already is not tried.
        rounds.look(&rounds.open_ids(None));
    }
    loop {
        check_for_interrupts();
        let open = keys.replaceable(now);
        let there = rounds.there(&open);
        let left: Vec<&NewTask> =
            tasks.iter().filter(|task| task.id_is_new || !there.contains_key(&task.id)).collect();
        rounds.refuse_taken(&left, &open)?;
        let round = rounds.go(&left, keys)?;
        if rounds.is_over(&round, keys) {
            return Ok(Ground { stored: round.stored, written: rounds.written, there });
        }
    }
}

impl<'a> Rounds<'a> {
    /// With `on_conflict => 'skip'`: the tasks that are there for good, by id. The place of one that is `open` may yet be taken.
    fn there(&self, open: &HashMap<String, TaskNo>) -> HashMap<String, TaskNo> {
        if self.options.on_conflict != OnConflict::Skip {
            return HashMap::new();
        }
        let there = self.seen.iter().filter(|(id, _)| !open.contains_key(*id));
        there.map(|(id, task_no)| (id.clone(), *task_no)).collect()
    }

    /// `TQ002` where an id is not free that has to be.
    fn refuse_taken(&self, left: &[&NewTask], open: &HashMap<String, TaskNo>) -> Result<()> {
        if self.options.on_conflict != OnConflict::Error || self.seen.is_empty() {
            return Ok(());
        }
        let is_taken = |id: &&str| self.seen.contains_key(*id) && !open.contains_key(*id);
        let ids = left.iter().filter(|task| !task.id_is_new).map(|task| task.id.as_str());
        let taken: Vec<&str> = ids.filter(is_taken).collect();
        taken.first().map_or(Ok(()), |first| Err(in_the_way::exists(first, taken.len() - 1)))
    }

    /// A round over the elements that are left.
    fn go(&mut self, left: &[&NewTask], keys: &mut Keys) -> Result<Round> {
        let replaces = self.options.on_conflict == OnConflict::Replace;
        keys.are_asked_for(left, replaces, self.now);
        // Those whose rows are written replace none.
        let replaced = left.iter().filter(|task| replaces && !self.written[task.element]);
        let replaced: Vec<&str> = replaced.map(|task| task.id.as_str()).collect();
        let stored = lock_stored(left, &keys.stand_ins(left), &replaced, &keys.watched(self.now))?;
        keys.are_locked(&stored, self.now);
        let tried = self.to_try(left, keys, &stored);
        if !tried.is_empty() && self.written.contains(&true) {
            // Ids are waited for in their order. A call that cannot begin anew goes on.
            locks::restart_if_possible();
        }
        let refused: BTreeSet<usize> = rows::insert(&tried, self.now).into_iter().collect();
        if let Some(first) = refused.first()
            && keys.is_empty()
            && self.options.on_conflict == OnConflict::Error
        {
            return Err(in_the_way::exists(&self.tasks[*first].id, refused.len() - 1));
        }
        for task in &tried {
            self.written[task.element] = !refused.contains(&task.element);
            if self.written[task.element] {
                // Whose id it was when it was seen is no matter any more: the id is the element's.
                self.seen.remove(&task.id);
            }
        }
        let comes = |task: &&&NewTask| !refused.contains(&task.element) && !keys.keep_out(task, self.now);
        let merged: BTreeSet<MergeKey> =
            left.iter().filter(comes).filter_map(|task| task.merge_key()).collect();
        if !merged.is_empty() {
            merge_key::make_keys(&merged.iter().cloned().collect::<Vec<_>>());
            // Behind ids: a later round waits for nothing that comes before them.
            locks::holds(Rank::Ids);
        }
        let waited = !tried.is_empty() || !merged.is_empty() || !stored.is_empty();
        Ok(Round { stored, waited, refused: !refused.is_empty() })
    }

    /// The elements whose rows are to be inserted now: those that are inserted unless others have their ids. A made-up id is waited for
    /// by no call, nor is one of a task that is to be replaced: these rows come when it is known which elements are inserted.
    fn to_try<'b>(&self, left: &[&'b NewTask], keys: &Keys, stored: &Stored) -> Vec<&'b NewTask> {
        let mut seen = self.own_ids();
        let skips = self.options.on_conflict == OnConflict::Skip;
        let mut is_tried = |task: &&NewTask| {
            if task.id_is_new {
                return task.spec.unique.is_none();
            }
            !stored.numbers.contains_key(&task.id)
                && !keys.keep_out(task, self.now)
                // Twice: whether the second one is inserted is known later.
                && (!skips || seen.insert(task.id.clone()))
        };
        left.iter().copied().filter(|task| !self.written[task.element] && is_tried(task)).collect()
    }

    /// With `on_conflict => 'skip'`, where an id may stand twice: the ids whose rows are written.
    fn own_ids(&self) -> HashSet<String> {
        if self.options.on_conflict != OnConflict::Skip {
            return HashSet::new();
        }
        self.tasks.iter().filter(|task| self.written[task.element]).map(|task| task.id.clone()).collect()
    }

    /// The ids that the call goes by and has no lock for: those of elements, and those that dependencies name and that are missing.
    fn open_ids(&self, stored: Option<&Stored>) -> Vec<String> {
        let missing: Vec<&str> = stored.into_iter().flat_map(Stored::missing).collect();
        // What has gone may have left its id to an element.
        let written = || self.tasks.iter().filter(|task| self.written[task.element]);
        let may_be_own = self.options.on_conflict == OnConflict::Skip || !missing.is_empty();
        let own: HashSet<&str> =
            if may_be_own { written().map(|task| task.id.as_str()).collect() } else { HashSet::new() };
        // One whose task was another's when it was seen has to be seen again.
        let is_other = |id: &str, locked: &TaskNo| self.seen.get(id).is_some_and(|seen| seen != locked);
        let locked = |id: &str| stored.and_then(|stored| stored.numbers.get(id));
        let is_locked = |id: &str| locked(id).is_some_and(|locked| !is_other(id, locked));
        let is_open = |task: &&NewTask| {
            !task.id_is_new
                && !self.written[task.element]
                && !is_locked(&task.id)
                && !own.contains(task.id.as_str())
        };
        let ids: HashSet<&str> = self.tasks.iter().filter(is_open).map(|task| task.id.as_str()).collect();
        let missing = missing.into_iter().filter(|id| !own.contains(id));
        ids.into_iter().chain(missing).map(str::to_owned).collect()
    }

    /// Looks at these ids; whether any of them means something else than before.
    fn look(&mut self, ids: &[String]) -> bool {
        let mut found = numbers::by_id(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        let mut changed = false;
        for id in ids {
            let before = self.seen.remove(id);
            let now = found.remove(id);
            changed |= now != before;
            self.seen.extend(now.map(|now| (id.clone(), now)));
        }
        changed
    }

    /// Whether all that the round has gone by is as it was.
    fn is_over(&mut self, round: &Round, keys: &mut Keys) -> bool {
        let ids = self.open_ids(Some(&round.stored));
        if !round.waited && (ids.is_empty() || keys.is_empty()) {
            // It was seen in one look.
            return true;
        }
        let others = self.look(&ids);
        let holders = keys.may_change() && keys.look(self.now);
        !round.refused && !others && !holders
    }
}
