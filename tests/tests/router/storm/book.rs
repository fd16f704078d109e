//! What was asked and what was told; what was wrong in that is noted as it happens.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use taskq_tests::Grant;
use uuid::Uuid;

use super::audit::{Shard, audit};

/// How long a task is held without a sign of life.
pub const LEASE: Duration = Duration::from_secs(2);

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told {
    /// It was acknowledged.
    Done,
    /// It was refused: nothing was done.
    Refused,
    /// The connection broke: what was done is unknown.
    Unknown,
}

#[derive(Default)]
pub struct Book {
    over: AtomicBool,
    pages: Mutex<Pages>,
}

#[derive(Default)]
pub struct Pages {
    /// Every id that a client has sent, and whether that was acknowledged.
    pub sent: BTreeMap<String, bool>,
    /// Of a task, what it depends on.
    pub parents: HashMap<String, String>,
    /// Tokens that were granted.
    pub granted: BTreeMap<Uuid, String>,
    /// A client that was granted a task, and has not sent its return, holds it until then at least.
    held: HashMap<String, Instant>,
    /// Returns that would end a task: by id, each code, and what was told.
    pub ends: BTreeMap<String, Vec<(String, Told)>>,
    /// Tasks of which a client has sent a cancellation.
    pub cancelled: BTreeSet<String>,
    /// What was wrong as it happened.
    pub seen: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub fn count(&self, what: &'static str) {
        *self.pages().counts.entry(what).or_default() += 1;
    }

    /// Before an insertion is sent: `(id, what it depends on)`.
    pub fn sending(&self, tasks: &[(String, Option<String>)]) {
        let mut pages = self.pages();
        for (id, parent) in tasks {
            pages.sent.entry(id.clone()).or_default();
            if let Some(parent) = parent {
                pages.parents.insert(id.clone(), parent.clone());
            }
        }
    }

    pub fn inserted(&self, ids: &[String]) {
        let mut pages = self.pages();
        for id in ids {
            pages.sent.insert(id.clone(), true);
        }
    }

    /// A grant whose call was sent at this time and has just come back.
    pub fn granted(&self, grant: &Grant, sent: Instant) {
        let mut pages = self.pages();
        let id = &grant.task_id;
        if let Some(other) = pages.granted.insert(grant.token, id.clone()) {
            pages.seen.push(format!("the token {} was granted for {other} and for {id}", grant.token));
        }
        if !pages.sent.contains_key(id) {
            pages.seen.push(format!("{id} was granted, and was never sent"));
        }
        if pages.held.get(id).is_some_and(|until| *until > Instant::now()) {
            pages.seen.push(format!("{id} was granted to two"));
        }
        let ended = |ends: &Vec<(String, Told)>| ends.iter().any(|(_, told)| *told == Told::Done);
        if pages.ends.get(id).is_some_and(ended) {
            pages.seen.push(format!("{id} was granted, and had ended"));
        }
        if let Some(parent) = pages.parents.get(id)
            && !pages.ends.contains_key(parent)
        {
            let line = format!("{id} was granted before {parent} was returned");
            pages.seen.push(line);
        }
        pages.held.insert(id.clone(), sent + LEASE);
        *pages.counts.entry("grants").or_default() += 1;
    }

    /// Before a return is sent; the line of it, if it is one that ends the task.
    pub fn returning(&self, grant: &Grant, code: &str) -> Option<usize> {
        let mut pages = self.pages();
        pages.held.remove(&grant.task_id);
        if code == "pending" {
            return None;
        }
        let ends = pages.ends.entry(grant.task_id.clone()).or_default();
        ends.push((code.to_owned(), Told::Unknown));
        Some(ends.len() - 1)
    }

    pub fn returned(&self, grant: &Grant, line: Option<usize>, told: Told) {
        let mut pages = self.pages();
        if let Some(line) = line {
            pages.ends.get_mut(&grant.task_id).expect("a line")[line].1 = told;
        }
        let what = match told {
            Told::Done => "returns accepted",
            Told::Refused => "returns refused",
            Told::Unknown => "returns with no answer",
        };
        *pages.counts.entry(what).or_default() += 1;
    }

    pub fn cancelling(&self, id: &str) {
        self.pages().cancelled.insert(id.to_owned());
    }

    pub fn wrong(&self, what: String) {
        self.pages().seen.push(what);
    }

    /// Everything that does not agree.
    pub fn audit(&self, shards: &[Shard], homes: &HashMap<String, usize>) -> Vec<String> {
        audit(&self.pages(), shards, homes)
    }

    pub fn report(&self, shards: &[Shard]) -> String {
        let pages = self.pages();
        let mut lines: Vec<String> =
            pages.counts.iter().map(|(what, count)| format!("{count:8}  {what}")).collect();
        let sure = pages.sent.values().filter(|known| **known).count();
        lines.push(format!("{:8}  tasks sent, {sure} of them acknowledged", pages.sent.len()));
        for (n, shard) in shards.iter().enumerate() {
            lines.push(format!("{:8}  tasks in the end on shard {n}", shard.len()));
        }
        lines.join("\n")
    }

    /// What must have happened, or nothing was tried.
    pub fn counted(&self, what: &str) -> u64 {
        self.pages().counts.get(what).copied().unwrap_or(0)
    }
}
