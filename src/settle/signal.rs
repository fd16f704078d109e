//! Counting down the tasks that wait.
//!
//! **No signaller ever waits for another.** It locks the counters it needs with SKIP LOCKED, in the order
//! of task numbers; for a counter that another transaction has locked it appends a row to `signal` instead. Those
//! rows are folded into the counter later (see [`super::fold`]), by a transaction that has locked the
//! counter *first* and then deletes them with a newer snapshot: whichever of the two commits first, each
//! signal is counted by exactly one transaction, the one that updates the counter and commits. That one does so
//! as soon as it matters is the concern of [`super::commit`].

use std::collections::{BTreeMap, HashMap};

use super::{Ending, Lost};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::state::{Cause, Outcome};
use crate::store::blocked::{self, News};
use crate::store::live::{Live, Place};
use crate::store::ready::{self, Freed};
use crate::store::touched::{self, Touch};
use crate::store::{dependency, numbers, signal, task};

/// What a task that waits has to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Dependencies that ended as they should.
    pub(crate) satisfied: i32,
    /// Of these, how many aborted.
    pub(crate) failed: i32,
    /// Dependencies that ended the wrong way.
    pub(crate) lost: i32,
    /// Of these, how many were not needed.
    pub(crate) skipped: i32,
    /// The status that a lost dependency gives the task: one that has failed, if one has.
    pub(crate) lost_status: Option<String>,
}

impl Delta {
    fn only_skipped(&self) -> bool {
        self.skipped == self.lost
    }

    /// Counts what another has to tell as well.
    pub(super) fn add(&mut self, other: Delta) {
        if self.lost_status.is_none() || (self.only_skipped() && !other.only_skipped()) {
            self.lost_status = other.lost_status;
        }
        self.satisfied += other.satisfied;
        self.failed += other.failed;
        self.lost += other.lost;
        self.skipped += other.skipped;
    }
}

/// Deltas by task number, in the order in which counters are locked.
pub(crate) type Deltas = BTreeMap<TaskNo, Delta>;

/// What the news means for the tasks that wait for it.
pub(crate) fn deltas(news: &[(TaskNo, Outcome)]) -> Deltas {
    let outcomes: HashMap<TaskNo, Outcome> = news.iter().copied().collect();
    let task_nos: Vec<TaskNo> = news.iter().map(|(task_no, _)| *task_no).collect();
    let mut edges = dependency::waiting_for(&task_nos);
    edges.sort_unstable_by_key(|(after, run, _)| (*run, *after));

    let mut deltas = Deltas::new();
    let mut lost: BTreeMap<TaskNo, Lost> = BTreeMap::new();
    for (after, run, condition) in edges {
        let outcome = outcomes[&after];
        let delta = deltas.entry(run).or_default();
        delta.failed += i32::from(outcome.is_abort());
        match Lost::of(after, condition, outcome) {
            None => delta.satisfied += 1,
            Some(one) => {
                delta.lost += 1;
                delta.skipped += i32::from(one.skipped());
                lost.insert(run, Lost::decides(lost.get(&run).copied(), one));
            }
        }
    }
    let mut causes: Vec<TaskNo> = lost.values().map(|lost| lost.after).collect();
    causes.dedup();
    let ids = numbers::ids(&causes);
    for (run, lost) in lost {
        let id = ids.get(&lost.after).map_or("", String::as_str);
        deltas.entry(run).or_default().lost_status = Some(lost.status(id));
    }
    deltas
}

/// Which of the tasks have a counter.
static STILL_BLOCKED: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT b.task_no FROM taskq.blocked b WHERE b.task_no = ANY ($1)");

/// Counts what can be counted now, defers the rest, and returns the tasks that end by it.
pub(crate) fn apply(deltas: Deltas, now: Time) -> Vec<Ending> {
    if deltas.is_empty() {
        return Vec::new();
    }
    let news: Vec<News> = deltas
        .iter()
        .map(|(task_no, delta)| News {
            task_no: *task_no,
            ended: delta.satisfied + delta.lost,
            failed: delta.failed,
            lost: delta.lost > 0,
        })
        .collect();
    let counted = blocked::count_down(&news);
    defer(&deltas, counted.busy, &counted.not_there);
    let (lost, done): (Vec<Live>, Vec<Live>) =
        counted.over.into_iter().partition(|counter| deltas[&counter.task_no].lost > 0);
    let mut endings: Vec<Ending> = lost
        .iter()
        .map(|counter| {
            let delta = &deltas[&counter.task_no];
            Ending::abort(counter, Cause::of_lost(delta.only_skipped()), delta.lost_status.clone())
        })
        .collect();
    endings.extend(release_or_complete(done, now));
    endings
}

/// Appends the signals of tasks whose counters other transactions have locked. A task that has no counter any more
/// (it was cancelled, or aborted by an earlier signal) needs none; one that is there by now was not to be had either.
fn defer(deltas: &Deltas, mut busy: Vec<TaskNo>, not_there: &[TaskNo]) {
    if !not_there.is_empty() {
        busy.extend(STILL_BLOCKED.query(not_there));
    }
    if busy.is_empty() {
        return;
    }
    signal::append(busy.iter().map(|task_no| {
        let delta = &deltas[task_no];
        let status = delta.lost_status.as_deref();
        signal::Signal {
            task_no: *task_no,
            satisfied: delta.satisfied,
            failed: delta.failed,
            lost: delta.lost,
            status,
            skipped: delta.skipped,
        }
    }));
    touched::look_again(&busy, Touch::LeftSignal);
}

/// Tasks with nothing left to wait for: the spontaneous ones complete, the others are released.
pub(crate) fn release_or_complete(done: Vec<Live>, now: Time) -> Vec<Ending> {
    if done.is_empty() {
        return Vec::new();
    }
    let spontaneous = task::spontaneous(done.iter().map(|c| c.task_no));
    let (complete, released): (Vec<Live>, Vec<Live>) =
        done.into_iter().partition(|c| spontaneous.contains(&c.task_no));
    ready::release(
        released
            .iter()
            .map(|c| Freed {
                not_before: match c.place {
                    Place::Blocked { not_before, .. } => not_before,
                    _ => None,
                },
                ..c.freed()
            })
            .collect(),
        now,
    );
    complete.iter().map(|counter| Ending::of(counter, Outcome::Completed, Cause::Spontaneous, None)).collect()
}
