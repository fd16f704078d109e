//! Suspending: `src/returns/suspend.rs`, `src/settle` (`suspended.rs`, `signal.rs`, `fold.rs`), `src/store/blocked.rs`,
//! `src/store/dependency.rs`. That two suspensions close no cycle is the model [`circle`].
//!
//! A task is held by a worker, suspended for some others, granted again and suspended again. Other transactions end what it
//! waits for, or what it has waited for; they stay open for a while. Upkeep frees the task when its time is over. Or the task
//! waits from its insertion, and some of its dependencies suffice. Transactions commit and are rolled back in any order; what was
//! rolled back is done once more.
//!
//! **What must hold:** the task is free only if enough has ended of what *this* wait is for, or if its time is over. It is in
//! one place at any moment. It aborts if too much of that has ended the wrong way, and in no other case. Each end is
//! counted once: in `remaining` or `spare` as long as the task waits, and in `failures` (as though every end were an abort) as
//! long as the edge is there. A task that is free has no open edge. When all has ended, the task is free, or has aborted, without
//! any further call. Only a rollback leaves that to one call of upkeep, which it wakes (`fold::some`).
//!
//! *The database.* What a transaction writes is seen by others with its commit; each statement has a snapshot of its own. A
//! transaction that changes or locks a row has it until its end.
//!
//! *What is left out:* the signs with which the look before a commit becomes one with the commit ([`signals`](crate::signals)
//! has them; here the last look and the commit are one step); retry, `add_dependencies`, and deletions that take a task with
//! them; the restart of a call that would wait for a row with others locked, which [`circle`] has.

mod cases;
pub mod circle;
mod clauses;
mod deletion;
mod protocol;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use clauses::{Clause, NEEDED};

/// A task that is waited for, by number; and sets of them, a bit for each.
type After = u8;
type Set = u8;
/// A transaction: 0 is the worker, then come those that end or delete tasks, then upkeep.
type Who = usize;
/// The number of a wait.
type WaitNo = u8;

const WORKER: Who = 0;

const X: Set = 1;
const Y: Set = 2;
const Z: Set = 4;

/// The protocol, and how much of it is tried.
#[derive(Clone, Debug)]
pub struct Suspend {
    /// What is left out of it.
    pub without: Option<Clause>,
    /// The task waits for these from its insertion, and so many of them suffice; else it is held.
    pub inserted: Option<(Set, u8)>,
    /// For what the task is suspended, one after the other.
    pub waits: Vec<Set>,
    /// What ends, a set for each transaction.
    pub ends: Vec<Set>,
    /// Of these, what ends the wrong way.
    pub loses: Set,
    /// What is deleted instead.
    pub deletes: Set,
    /// How often the time of a wait may be over.
    pub time_outs: u8,
    /// How many transactions may be rolled back.
    pub rollbacks: u8,
}

impl Suspend {
    fn has(&self, clause: Clause) -> bool {
        self.without != Some(clause)
    }

    fn is_deletion(&self, b: Who) -> bool {
        b != WORKER && b != self.upkeep() && self.ends[b - 1] & self.deletes != 0
    }

    fn upkeep(&self) -> Who {
        self.ends.len() + 1
    }
}

/// What a counter has to count, and what it has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Count {
    remaining: i8,
    spare: i8,
    failures: u8,
}

/// The row of the task in `blocked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Counter {
    /// Tells this row from the earlier ones of the task.
    life: u8,
    wait_no: WaitNo,
    suspended: bool,
    /// As committed.
    now: Count,
    /// The transaction that has inserted it, unless that has committed.
    by: Option<Who>,
    /// The transaction that has it locked, and what that has made of it, if anything: `None` is a row that is removed.
    holder: Option<Who>,
    changed: Option<Option<Count>>,
}

/// What a task that does not wait is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Standing {
    Ready,
    Held,
    Aborted,
}

/// The row of the task in `run`, or in `settled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    standing: Standing,
    failures: u8,
    /// The transaction that has removed it, and has not committed.
    removed: Option<Who>,
    /// The transaction that has it locked.
    locked: Option<Who>,
}

/// A row of `dependency`: the task runs after this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Edge {
    after: After,
    wait_no: WaitNo,
    by: Option<Who>,
    dropped: Option<Who>,
}

/// Ends that a task has to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Ends {
    satisfied: u8,
    lost: u8,
}

impl Ends {
    fn add(&mut self, other: Ends) {
        self.satisfied += other.satisfied;
        self.lost += other.lost;
    }

    fn all(self) -> u8 {
        self.satisfied + self.lost
    }
}

/// A row of `countdown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Signal {
    wait_no: WaitNo,
    ends: Ends,
    by: Option<Who>,
    taken: Option<Who>,
}

/// A task that is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Awaited {
    ended: bool,
    deleted: bool,
    removed: Option<Who>,
    /// Held FOR KEY SHARE by the worker.
    shared: bool,
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Idle,
    /// The worker: its row is moved; it has held so many of what the task is to wait for.
    Holding(After),
    Linking,
    /// A transaction that ends or deletes tasks.
    Removing,
    ReadingEdges,
    Looking,
    Counting,
    LeavingSignals,
    /// A transaction that deletes one.
    LockingTask,
    LockingEdges,
    Losing,
    Recounting,
    /// Upkeep.
    Folding,
    Dropping,
    Open,
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Backend {
    at: At,
    /// What is to be counted, by wait.
    news: BTreeMap<WaitNo, Ends>,
    busy: BTreeMap<WaitNo, Ends>,
    not_there: BTreeMap<WaitNo, Ends>,
    /// The counter that a snapshot has shown.
    seen: Option<(u8, WaitNo)>,
    /// The task waits no more, and this is what its counter would have been.
    over: Option<Count>,
    touched: bool,
    /// The worker: what of the awaited had ended when it was held.
    ended: Set,
    /// The worker: how often it has suspended the task.
    suspended: usize,
    /// A deletion: the waits of the edges that it has removed.
    gone: Vec<WaitNo>,
    /// Upkeep: it frees the task because its time is over.
    time_is_up: bool,
}

impl Backend {
    fn new() -> Self {
        Backend {
            at: At::Idle,
            news: BTreeMap::new(),
            busy: BTreeMap::new(),
            not_there: BTreeMap::new(),
            seen: None,
            over: None,
            touched: false,
            ended: 0,
            suspended: 0,
            gone: Vec::new(),
            time_is_up: false,
        }
    }
}

/// What the last wait that is committed was for. It is no part of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Purpose {
    after: Set,
    required: u8,
    suspended: bool,
    time_is_up: bool,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    counter: Option<Counter>,
    entry: Option<Entry>,
    /// Rows of `run` and `settled` that are inserted and not committed, and by which transaction.
    freed: Vec<(Who, Entry)>,
    edges: Vec<Edge>,
    signals: Vec<Signal>,
    awaited: Vec<Awaited>,
    backends: Vec<Backend>,
    lives: u8,
    purpose: Purpose,
    /// The task was freed a second time.
    twice: bool,
    time_outs: u8,
    rollbacks: u8,
    /// A call is to look.
    woken: bool,
}

/// What a transaction does in one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The task is granted to the worker.
    Own,
    /// `suspend::block`: the row has moved from `run` to `blocked`.
    Block,
    /// `live::lock_any`, FOR KEY SHARE: the next of what the task is to wait for.
    HoldNext,
    /// `suspend::count`, and what follows.
    Link,
    /// Tasks end, or are deleted: their live rows are removed.
    Remove(usize),
    /// `dependency::waiting_for`.
    ReadEdges(usize),
    /// `blocked::count_down` begins: the snapshot.
    Snapshot(usize),
    /// `blocked::count_one`.
    CountOne(usize),
    /// `signal::defer`.
    LeaveSignals(usize),
    /// `remove::edges_gone`: the task that waits is locked.
    LockTask(usize),
    /// `locks::lock_edges_of`, and `dependency::REMOVE_AFTER`.
    LockEdges(usize),
    /// `remove::edges_gone`: what is left for the task is counted.
    Lose(usize),
    /// `Recount::after`: the counter is worked out.
    Recount(usize),
    /// `suspended::OVERDUE`.
    LockOverdue,
    /// `fold::of`.
    Fold,
    /// `dependency::DROP_OPEN`, and the task goes on.
    DropOpen(usize),
    /// `fold::some`, of a call that was woken.
    Collect,
    /// `commit::before_commit`: it counts what it finds, or the transaction commits.
    LookAndCommit(usize),
    /// A rollback.
    RollBack(usize),
}

fn each(set: Set) -> impl Iterator<Item = After> {
    (0..8).filter(move |after| set & 1 << after != 0)
}

impl State {
    /// The counter as others than the transaction that inserts it see it.
    fn committed_counter(&self) -> Option<&Counter> {
        self.counter.as_ref().filter(|counter| counter.by.is_none())
    }

    fn can_lock(&self, b: Who) -> bool {
        self.committed_counter().is_some_and(|counter| {
            counter.holder.is_none_or(|holder| holder == b) && counter.changed != Some(None)
        })
    }

    /// What of these has ended by a commit.
    fn ended(&self, set: Set) -> Set {
        each(set).filter(|after| self.awaited[*after as usize].ended).map(|after| 1 << after).sum()
    }

    fn commit(&mut self, b: Who, deletes: bool) {
        for awaited in self.awaited.iter_mut().filter(|awaited| awaited.removed == Some(b)) {
            (awaited.ended, awaited.removed) = (!deletes, None);
            awaited.deleted = deletes;
        }
        self.edges.retain(|edge| edge.dropped != Some(b));
        self.edges.iter_mut().filter(|edge| edge.by == Some(b)).for_each(|edge| edge.by = None);
        self.signals.retain(|signal| signal.taken != Some(b));
        self.signals.iter_mut().filter(|signal| signal.by == Some(b)).for_each(|signal| signal.by = None);
        if let Some(counter) = self.counter.as_mut().filter(|counter| counter.holder == Some(b)) {
            let changed = counter.changed.take();
            (counter.by, counter.holder) = (None, None);
            match changed {
                Some(None) => self.counter = None,
                Some(Some(count)) => counter.now = count,
                None => {}
            }
        }
        self.entry = self.entry.filter(|entry| entry.removed != Some(b));
        self.unlock_entry(b);
        for (_, entry) in self.freed.extract_if(.., |(by, _)| *by == b) {
            self.twice |= self.entry.is_some();
            self.entry = Some(entry);
        }
        self.sort();
    }

    fn roll_back(&mut self, b: Who) {
        for awaited in self.awaited.iter_mut().filter(|awaited| awaited.removed == Some(b)) {
            awaited.removed = None;
        }
        self.edges.retain(|edge| edge.by != Some(b));
        self.edges.iter_mut().filter(|edge| edge.dropped == Some(b)).for_each(|edge| edge.dropped = None);
        self.signals.retain(|signal| signal.by != Some(b));
        self.signals
            .iter_mut()
            .filter(|signal| signal.taken == Some(b))
            .for_each(|signal| signal.taken = None);
        self.counter = self.counter.filter(|counter| counter.by != Some(b));
        if let Some(counter) = self.counter.as_mut().filter(|counter| counter.holder == Some(b)) {
            (counter.holder, counter.changed) = (None, None);
        }
        if let Some(entry) = self.entry.as_mut().filter(|entry| entry.removed == Some(b)) {
            entry.removed = None;
        }
        self.unlock_entry(b);
        self.freed.retain(|(by, _)| *by != b);
        self.sort();
    }

    fn unlock_entry(&mut self, b: Who) {
        if let Some(entry) = self.entry.as_mut() {
            entry.locked = entry.locked.filter(|who| *who != b);
        }
    }

    /// What is not deleted of these.
    fn there(&self, set: Set) -> Set {
        each(set).filter(|after| !self.awaited[*after as usize].deleted).map(|after| 1 << after).sum()
    }

    fn sort(&mut self) {
        self.edges.sort_unstable();
        self.signals.sort_unstable();
    }
}
