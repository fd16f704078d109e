//! Unique tasks: of those with the same action and key only one holds the key at a time.
//!
//! `unique_key` has one row per key that points to the task inserted last with it. Whether that task holds
//! the key (is in one of its states, within its period) is worked out from the task when an insertion asks,
//! so granting and settling cost nothing, and a key whose task is gone is free.
//!
//! **Of two callers that insert the same key, one waits for the other.** An insertion locks the rows of
//! all its keys before it locks a task, in the order of (action, key), in
//! one statement that inserts those that are missing; so calls with the same keys in any order do not
//! deadlock over these. The state of the key's holder is read with a *newer* snapshot: if the transaction that had the
//! row has committed, its task is seen. Under REPEATABLE READ a row that was committed after the transaction's snapshot
//! is an error (40001) and not a wrong answer.
//!
//! **What is replaced, followed or relied upon is locked** with everything else that the call names, in the
//! global order (`locks`), and read again. A claim may have granted it meanwhile; then it is decided by
//! that. What holds a key and is not locked is looked at again behind all that the call waits for ([`ground`](super::ground)). A task is *relied upon* if the new one is not inserted because that one waits: it must not
//! begin before this transaction, which may have changed what it works on, has committed.
//!
//! **Then the elements are gone through once, in their order** ([`pass`](super::pass)), when all that may be waited for has been waited for:
//! keys, stored tasks, and ids that another transaction may be inserting.
//!
//! A call that removes a task removes the row that points to it, with SKIP LOCKED, and so does not wait for an
//! insertion there. A row that is left behind by that points to a task that is gone, which makes its key free, or that of the task
//! behind which that came; the next task with the key takes the row over, or [`unique_key::tidy`] removes it.

mod known;
mod rows;

pub(super) use known::{Holder, Turn, Verdict};
pub(crate) use rows::{lock_ahead, of, unlock};

use std::collections::{BTreeMap, HashMap, HashSet};

use super::new::NewTask;
use super::stored::Stored;
use crate::error::Result;
use crate::input::OnHeld;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::rights;
use crate::settle::riders;
use crate::store::unique_key::{self, Key, Pointer};
use known::{Known, key_of};

/// The keys of a call.
#[derive(Default)]
pub(super) struct Keys {
    known: BTreeMap<Key, Known>,
    /// Those that were there.
    stored: Vec<Key>,
    /// The tasks with these, as they were seen last.
    seen: Vec<Holder>,
}

impl Keys {
    /// Locks the keys of the call's tasks and looks which tasks hold them.
    pub(super) fn lock(tasks: &[NewTask], now: Time) -> Self {
        let mut known: BTreeMap<Key, Known> = BTreeMap::new();
        for task in tasks {
            if let Some(key) = key_of(&task.spec) {
                known.entry(key).or_insert_with(|| Known::new(task.task_no, now, None));
            }
        }
        if known.is_empty() {
            return Keys::default();
        }
        let made = unique_key::lock(known.iter().map(|(key, known)| (key, known.points_to)), now);
        let stored = known.iter().filter(|(_, known)| !made.contains(&known.points_to));
        let stored: Vec<Key> = stored.map(|(key, _)| key.clone()).collect();
        let mut keys = Keys { known, stored, seen: Vec::new() };
        for (key, found) in rows::look(&keys.stored, now) {
            keys.seen.extend(found.holders().cloned());
            keys.known.insert(key, found);
        }
        let replacing = |task: &&NewTask| {
            task.spec.unique.as_ref().is_some_and(|unique| unique.on_conflict == OnHeld::Replace)
        };
        for key in tasks.iter().filter(replacing).filter_map(|task| key_of(&task.spec)) {
            keys.known.entry(key).and_modify(|known| known.replacing = true);
        }
        keys
    }

    /// Whether a task with one of the keys may have changed since it was seen: it is not locked. (No other task comes to have one: the keys
    /// are locked.)
    pub(super) fn may_change(&self) -> bool {
        self.known.values().flat_map(Known::holders).any(|holder| !holder.locked)
    }

    /// Looks again which tasks hold the keys; whether anything has changed.
    pub(super) fn look(&mut self, now: Time) -> bool {
        let found = rows::look(&self.stored, now);
        let seen: Vec<Holder> = found.values().flat_map(Known::holders).cloned().collect();
        if seen == self.seen {
            return false;
        }
        for (key, found) in found {
            if let Some(known) = self.known.get_mut(&key) {
                (known.holder, known.behind) = (found.holder, found.behind);
            }
        }
        self.seen = seen;
        true
    }

    /// Finds out which stored tasks are locked for the sake of these tasks: for a change those that they replace by their ids
    /// (`by_id`), and those that are `watched`; held those that they may mean.
    pub(super) fn are_asked_for(&mut self, tasks: &[&NewTask], by_id: bool, now: Time) {
        if self.known.values().all(|known| known.holders().next().is_none()) {
            return;
        }
        // A caller that may not have stored tasks wait locks none for `to_signal_after`: a holder that is not locked must not count as gone.
        let waited_for = tasks.iter().flat_map(|task| &task.spec.depends_on);
        let signalled =
            tasks.iter().filter(|_| rights::may_block()).flat_map(|task| &task.spec.to_signal_after);
        let named: HashSet<&str> = waited_for.chain(signalled).map(|r| r.id.as_str()).collect();
        for task in tasks.iter().filter(|task| named.contains(task.id.as_str())) {
            if let Some(known) = key_of(&task.spec).and_then(|key| self.known.get_mut(&key)) {
                known.named = true;
            }
        }
        let ids: HashSet<&str> = tasks.iter().filter(|_| by_id).map(|task| task.id.as_str()).collect();
        for known in self.known.values_mut() {
            let open = known.is_open(now);
            let by_id = known.holders().any(|holder| ids.contains(holder.id.as_str()));
            known.by_id = by_id;
            for holder in known.holder.iter_mut().chain(&mut known.behind) {
                holder.locked = open || ids.contains(holder.id.as_str());
            }
        }
    }

    /// What becomes of an element that asks for its key, if it has one. See [`Known::ask`].
    pub(super) fn ask(
        &self,
        task: &NewTask,
        gives_way: Option<TaskNo>,
        gone: impl Fn(TaskNo) -> bool,
        now: Time,
    ) -> Result<Option<Verdict>> {
        let Some(key) = key_of(&task.spec) else { return Ok(None) };
        self.known.get(&key).map(|known| known.ask(&key, task, gives_way, gone, now)).transpose()
    }

    /// An element has its key from now on.
    pub(super) fn take(&mut self, task: &NewTask, holder: Holder, turn: &Turn) {
        if let Some(known) = key_of(&task.spec).and_then(|key| self.known.get_mut(&key)) {
            known.holder = Some(holder);
            known.behind.clone_from(&turn.behind);
            (known.not_before, known.since) = (turn.not_before, turn.since);
        }
    }

    /// Whether no task of the call has a key.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The ids of stored tasks that have to be locked for a change, and looked at again, before the elements are gone through.
    pub(super) fn watched(&self, now: Time) -> Vec<String> {
        let open = self.known.values().filter(|known| known.is_open(now));
        open.flat_map(Known::holders).map(|holder| holder.id.clone()).collect()
    }

    /// The ids of the stored tasks that ids of the call may come to mean, if their elements are left out for their keys.
    pub(super) fn stand_ins<'a>(&'a self, tasks: &[&'a NewTask]) -> HashMap<&'a str, Vec<&'a str>> {
        let mut stand_ins: HashMap<&str, Vec<&str>> = HashMap::new();
        for task in tasks {
            let known = key_of(&task.spec).and_then(|key| self.known.get(&key));
            for holder in known.into_iter().filter(|known| known.named).flat_map(Known::holders) {
                stand_ins.entry(&task.id).or_default().push(&holder.id);
            }
        }
        stand_ins
    }

    /// The stored tasks whose places elements may take for their keys, by id.
    pub(super) fn replaceable(&self, now: Time) -> HashMap<String, TaskNo> {
        let replaced = self.known.values().filter(|known| known.replacing && known.is_open(now));
        replaced.flat_map(Known::holders).map(|holder| (holder.id.clone(), holder.task_no)).collect()
    }

    /// Whether the task is left out whatever becomes of the others: a stored task has its key, and keeps it.
    pub(super) fn keep_out(&self, task: &NewTask, now: Time) -> bool {
        let known = key_of(&task.spec).and_then(|key| self.known.get(&key));
        let may_go = |known: &Known| known.replacing || known.by_id;
        known.is_some_and(|known| !may_go(known) && known.holders().any(|holder| holder.holds(now)))
    }

    /// Reads those of the stored tasks again that are locked now.
    pub(super) fn are_locked(&mut self, stored: &Stored, now: Time) {
        let locked = self.known.values().flat_map(Known::holders).filter(|holder| holder.locked);
        let may_ride: Vec<TaskNo> = locked.filter(|h| h.may_ride).map(|h| h.task_no).collect();
        let riding = if may_ride.is_empty() { HashSet::new() } else { riders::among(&may_ride) };
        for known in self.known.values_mut() {
            // What is named is only held: it may begin or be given back at any time, and counts as it was.
            let is_held = known.named;
            let locked = |holder: Holder| match holder.locked {
                true => holder.locked(stored, &riding, now),
                false => Some(holder).filter(|h| !is_held || stored.numbers.get(&h.id) == Some(&h.task_no)),
            };
            known.holder = known.holder.take().and_then(locked);
            known.behind = known.behind.take().and_then(locked);
        }
    }

    /// Lets the keys point to the tasks that are inserted, and removes the rows that were made for none. Before the tasks go whose places
    /// these take: with those would go the rows that still point to them.
    pub(super) fn point(&self) {
        let mut pointers: Vec<Pointer> = Vec::new();
        let mut unused: Vec<(&Key, TaskNo)> = Vec::new();
        for (key, known) in &self.known {
            match &known.holder {
                Some(holder) if holder.in_call && holder.task_no != known.points_to => {
                    pointers.push(Pointer {
                        key,
                        task_no: holder.task_no,
                        behind: known.behind.as_ref().map(|behind| behind.task_no),
                        since: known.since,
                        not_before: known.not_before,
                    })
                }
                Some(_) => {}
                None => unused.push((key, known.points_to)),
            }
        }
        unique_key::point(&pointers);
        unique_key::release(&unused);
    }
}

impl Known {
    /// Whether the stored tasks with it may have to be locked before it is decided what becomes of the elements with it.
    fn is_open(&self, now: Time) -> bool {
        self.holders().any(|holder| holder.holds(now) && (self.replacing || holder.is_relied_upon()))
    }
}
