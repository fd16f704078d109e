//! Unique tasks: of those with the same action and key only one holds the key at a time.
//!
//! `unique_key` has one row per key that points to the task inserted last with it. Whether that task holds
//! the key (is in one of its states, within its period) is worked out from the task when an insertion asks,
//! so granting and settling cost nothing, and a key whose task is gone is free.
//!
//! **Of two callers that insert the same key, one waits for the other.** An insertion locks the rows of
//! all its keys before it locks a task, in the order of (action, key), in
//! one statement that inserts those that are missing; so calls with the same keys in any order do not by themselves
//! deadlock over these. The state of the key's holder is read with a *newer* snapshot: if the transaction that had the
//! row has committed, its task is seen. Under REPEATABLE READ a row that was committed after the transaction's snapshot
//! is an error (40001) and not a wrong answer.
//!
//! **What is replaced, followed or relied upon is locked** with everything else that the call names, in the
//! global order (`locks`), and read again. A claim may have granted it meanwhile; then it is decided by
//! that. A task is *relied upon* if the new one is not inserted because that one waits: it must not
//! begin before this transaction, which may have changed what it works on, has committed.
//!
//! A call that removes a task removes the row that points to it, with SKIP LOCKED, and so does not wait for an
//! insertion there. A row that is left behind by that points to a task that is gone, which makes its key free; the
//! next task with the key takes the row over, or [`unique_key::tidy`] removes it.

mod call;
mod decide;
mod known;
mod rows;

pub(super) use call::Call;
pub(crate) use rows::{lock_keys, unlock};

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::new::NewTask;
use super::stored::Stored;
use crate::error::Result;
use crate::input::OnHeld;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::settle::riders;
use crate::store::unique_key::{self, Key, Pointer};
use decide::{LeftOut, Winner, as_locked, winners};
use known::{Holder, Known, key_of};

/// What the keys of a call come to.
#[derive(Default)]
pub(super) struct Keys {
    open: BTreeMap<Key, Known>,
    decided: BTreeMap<Key, (Known, Vec<Winner>)>,
}

impl Keys {
    /// Locks the keys of the call's tasks and looks which tasks hold them.
    pub(super) fn lock(tasks: &[NewTask], now: Time) -> Self {
        let mut open: BTreeMap<Key, Known> = BTreeMap::new();
        for task in tasks {
            let Some(key) = key_of(&task.spec) else { continue };
            open.entry(key)
                .or_insert_with(|| Known::new(task.task_no, now, None))
                .elements
                .push(task.element);
        }
        if open.is_empty() {
            return Keys::default();
        }
        let made = unique_key::lock(open.iter().map(|(key, known)| (key, known.points_to)), now);
        let stored = open.iter().filter(|(_, known)| !made.contains(&known.points_to));
        for (key, found) in rows::look(stored.map(|(key, _)| key.clone()), now) {
            if let Some(known) = open.get_mut(&key) {
                *known = Known { elements: std::mem::take(&mut known.elements), ..found };
            }
        }
        Keys { open, decided: BTreeMap::new() }
    }

    /// Decides on the keys for which the look was enough: no task holds them, or their holder stays as it is
    /// and has begun or may begin.
    pub(super) fn decide_early(&mut self, tasks: &mut Vec<NewTask>, call: &mut Call) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let by_element: HashMap<usize, &NewTask> = tasks.iter().map(|t| (t.element, t)).collect();
        let replaces = |element: &usize| {
            let unique = by_element.get(element).and_then(|task| task.spec.unique.as_deref());
            unique.is_some_and(|unique| unique.on_conflict == OnHeld::Replace)
        };
        let namesakes = Namesakes::of(tasks, call.by_id);
        let mut later: BTreeSet<Key> = BTreeSet::new();
        for key in namesakes.in_order(&self.open) {
            let known = &self.open[&key];
            let is_named = |element, holder: &Holder| {
                call.by_id && by_element.get(element).is_some_and(|task| task.id == holder.id)
            };
            let is_open = known.stored().any(|holder| {
                let replacing = known.elements.iter().any(|e| replaces(e) || is_named(e, holder));
                holder.is_open(replacing, call.now)
            });
            if is_open || namesakes.hangs_on(&key, known).is_some_and(|other| later.contains(&other)) {
                later.insert(key);
            }
        }
        let (later, now): (BTreeMap<Key, Known>, BTreeMap<Key, Known>) =
            std::mem::take(&mut self.open).into_iter().partition(|(key, _)| later.contains(key));
        self.open = later;
        self.decide(now, tasks, call)
    }

    /// The ids of stored tasks that have to be locked, and looked at again, before the rest is decided.
    pub(super) fn watched(&self) -> Vec<String> {
        let ids: BTreeSet<&String> =
            self.open.values().flat_map(Known::stored).map(|holder| &holder.id).collect();
        ids.into_iter().cloned().collect()
    }

    /// Decides on the rest, whose holders are locked.
    pub(super) fn decide_late(
        &mut self,
        tasks: &mut Vec<NewTask>,
        stored: &Stored,
        call: &mut Call,
    ) -> Result<()> {
        let mut open = std::mem::take(&mut self.open);
        let holders = open.values().flat_map(Known::stored);
        let may_ride: Vec<TaskNo> = holders.filter(|h| h.may_ride).map(|h| h.task_no).collect();
        let riding = if may_ride.is_empty() { HashSet::new() } else { riders::among(&may_ride) };
        let locked = |holder: Holder| as_locked(holder, stored, &riding, call.now);
        for known in open.values_mut() {
            known.holder = known.holder.take().and_then(locked);
            known.behind = known.behind.take().and_then(locked);
        }
        self.decide(open, tasks, call)
    }

    fn decide(
        &mut self,
        mut open: BTreeMap<Key, Known>,
        tasks: &mut Vec<NewTask>,
        call: &mut Call,
    ) -> Result<()> {
        if open.is_empty() {
            return Ok(());
        }
        let mut left_out = LeftOut::default();
        let mut decided = BTreeMap::new();
        {
            let by_element: HashMap<usize, &NewTask> = tasks.iter().map(|t| (t.element, t)).collect();
            let namesakes = Namesakes::of(tasks, call.by_id);
            for key in namesakes.in_order(&open) {
                let Some(known) = open.remove(&key) else { continue };
                let is_decided = |other: &Key| !open.contains_key(other) && !self.open.contains_key(other);
                let gives_way = namesakes.give_way(&key, &known, is_decided, &left_out);
                let winners = winners(&key, &known, &by_element, gives_way, call, &mut left_out)?;
                for winner in &winners {
                    left_out.replace(&winner.replaced, by_element[&winner.element]);
                }
                decided.insert(key, (known, winners));
            }
        }
        left_out.leave_out(tasks, call);
        let by_element: HashMap<usize, usize> =
            tasks.iter().enumerate().map(|(i, t)| (t.element, i)).collect();
        for (_, winners) in decided.values() {
            for winner in winners {
                winner.apply(&mut tasks[by_element[&winner.element]], call);
            }
        }
        self.decided.append(&mut decided);
        Ok(())
    }

    /// The ids of stored tasks whose places are taken, for their keys, by tasks with the same ids.
    pub(super) fn replaced_namesakes<'a>(&'a self, tasks: &[NewTask]) -> Vec<&'a str> {
        let ids: HashMap<usize, &str> = tasks.iter().map(|t| (t.element, t.id.as_str())).collect();
        self.winners()
            .flat_map(|winner| winner.replaced.iter().map(move |holder| (winner.element, holder)))
            .filter(|(element, holder)| ids.get(element) == Some(&holder.id.as_str()))
            .map(|(_, holder)| holder.id.as_str())
            .collect()
    }

    /// Lets the keys point to the tasks that were inserted; returns the ids of the stored tasks whose places
    /// they take.
    pub(super) fn take(&self, tasks: &[NewTask]) -> Vec<&str> {
        let inserted: HashMap<usize, TaskNo> = tasks.iter().map(|t| (t.element, t.task_no)).collect();
        let mut replaced = Vec::new();
        let mut pointers: Vec<Pointer> = Vec::new();
        let mut unused: Vec<(&Key, TaskNo)> = Vec::new();
        for (key, (known, winners)) in &self.decided {
            let mut points_to = None;
            for winner in winners {
                if let Some(task_no) = inserted.get(&winner.element) {
                    replaced.extend(winner.replaced.iter().map(|holder| holder.id.as_str()));
                    points_to = Some((winner, *task_no));
                }
            }
            match points_to {
                Some((winner, task_no)) if task_no != known.points_to => pointers.push(Pointer {
                    key,
                    task_no,
                    behind: winner.behind.as_ref().map(|behind| behind.task_no),
                    since: winner.since,
                    not_before: winner.not_before,
                }),
                // No task with the key is inserted after all: it turned out to exist under its id.
                None if known.holder.is_none() => unused.push((key, known.points_to)),
                _ => {}
            }
        }
        unique_key::point(&pointers);
        unique_key::release(&unused);
        replaced
    }

    /// The ids of stored tasks whose places are taken.
    pub(super) fn replaced(&self) -> HashSet<&str> {
        self.winners().flat_map(|winner| &winner.replaced).map(|holder| holder.id.as_str()).collect()
    }

    fn winners(&self) -> impl Iterator<Item = &Winner> {
        self.decided.values().flat_map(|(_, winners)| winners)
    }
}

/// The tasks of a call that take the places of those with the same ids.
struct Namesakes<'a> {
    by_id: HashMap<&'a str, &'a NewTask>,
}

impl<'a> Namesakes<'a> {
    fn of(tasks: &'a [NewTask], by_id: bool) -> Self {
        let tasks = tasks.iter().filter(|_| by_id);
        Namesakes { by_id: tasks.map(|task| (task.id.as_str(), task)).collect() }
    }

    /// The one that takes the place of a key's holder, if it is inserted.
    fn of_holder(&self, known: &Known) -> Option<&NewTask> {
        known.holder.as_ref().and_then(|holder| self.by_id.get(holder.id.as_str()).copied())
    }

    /// The other key on whose decision it hangs whether that is inserted.
    fn hangs_on(&self, key: &Key, known: &Known) -> Option<Key> {
        self.of_holder(known).and_then(|task| key_of(&task.spec)).filter(|other| other != key)
    }

    /// The keys, each after the one that it hangs on. (Where that goes round, one comes first.)
    fn in_order(&self, open: &BTreeMap<Key, Known>) -> Vec<Key> {
        if self.by_id.is_empty() {
            return open.keys().cloned().collect();
        }
        let mut ordered: Vec<Key> = Vec::with_capacity(open.len());
        let mut seen: BTreeSet<Key> = BTreeSet::new();
        for key in open.keys() {
            let first = ordered.len();
            let mut next = Some(key.clone());
            while let Some(key) = next.filter(|key| !seen.contains(key)) {
                next = open.get(&key).and_then(|known| self.hangs_on(&key, known));
                seen.insert(key.clone());
                ordered.extend(open.contains_key(&key).then_some(key));
            }
            ordered[first..].reverse();
        }
        ordered
    }

    /// Whether the holder of a key gives way to one that has its id, whatever comes of this key. Whether one with the same key is
    /// inserted is still to be decided.
    fn give_way(
        &self,
        key: &Key,
        known: &Known,
        is_decided: impl Fn(&Key) -> bool,
        left_out: &LeftOut,
    ) -> bool {
        self.of_holder(known).is_some_and(|task| {
            let own = key_of(&task.spec);
            own.as_ref() != Some(key) && own.as_ref().is_none_or(is_decided) && !left_out.has(task)
        })
    }
}
