//! Deferred signals, and which transaction counts them: `src/settle` (`signal.rs`, `fold.rs`, `unsent.rs`,
//! `commit.rs`), `src/store/blocked.rs`, `src/ends/touched.rs`.
//!
//! Some transactions return tasks that others wait for, at the same time. One locks a counter for something else
//! (`add_dependencies`, for instance). Transactions are rolled back, and what they did is done once more, or not; one may
//! stay open for ever. The session that a rollback wakes counts what it finds. There are no other calls.
//!
//! **What must hold:** each end is counted once, by a transaction that commits. When all that can commit have, a task
//! that has nothing left to wait for is free, unless a transaction that stays open has its counter. And no transaction
//! waits for one that stays open.
//!
//! *The database.* What a transaction writes is seen by others with its commit, and by those that read with a dirty
//! snapshot at once. A transaction that updates or locks a row has it until its end. When it commits, that is seen
//! first, and it gives its locks of the lock manager up then. A statement that takes rows with SKIP LOCKED takes each
//! in one instant.
//!
//! *What is left out:* the sign that stands for many counters; tidying where signals pile up; giving up after five
//! seconds, and PREPARE TRANSACTION, after which nothing is counted before the next call.

mod clauses;
mod protocol;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::check::long;
pub use clauses::{Clause, NEEDED, SPARED};

/// A task that waits, by number; and sets of them, a bit for each.
type Child = u8;
type Set = u8;

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Settles a task that these wait for.
    Return(Set),
    /// The same, in a way that these do not survive: they abort, whatever else they wait for.
    Lose(Set),
    /// Locks the counter of a task.
    Lock(Child),
    /// Counts what is found, when it is woken.
    Collect,
}

/// The protocol, and how much of it is tried.
#[derive(Clone, Debug)]
pub struct Signals {
    /// What is left out of it.
    pub without: Option<Clause>,
    /// The transactions.
    pub roles: Vec<Role>,
    /// Those of the children that complete by themselves, and which wait for them.
    pub spontaneous: BTreeMap<Child, Set>,
    /// How many transactions may be rolled back.
    pub rollbacks: u8,
    /// Whether what was rolled back is done once more: else its worker has died.
    pub done_again: bool,
    /// Whether the first may stay open.
    pub stays_open: bool,
}

impl Signals {
    fn of(without: Option<Clause>, roles: &[Role]) -> Self {
        let spontaneous = BTreeMap::new();
        Signals {
            without,
            roles: roles.to_vec(),
            spontaneous,
            rollbacks: 0,
            done_again: true,
            stays_open: false,
        }
    }

    /// What is tried.
    pub fn all(without: Option<Clause>) -> Vec<(&'static str, Signals)> {
        use Role::{Collect, Lock, Lose, Return};
        let of = |roles: &[Role]| Signals::of(without, roles);
        let mut all = vec![
            ("two of one", of(&[Return(1), Return(1)])),
            ("one stays open", Signals { stays_open: true, ..of(&[Return(1), Return(1)]) }),
            ("two of one, and a lock", of(&[Return(1), Return(1), Lock(0)])),
            (
                "a lock is rolled back",
                Signals { rollbacks: 1, done_again: false, ..of(&[Return(1), Lock(0), Collect]) },
            ),
            (
                "two of one, rolled back and done again",
                Signals { rollbacks: 1, ..of(&[Return(1), Return(1), Collect]) },
            ),
            (
                "an abort, rolled back",
                Signals { rollbacks: 1, done_again: false, ..of(&[Return(3), Lose(1), Collect]) },
            ),
            ("an abort beside another", of(&[Return(1), Lose(1), Return(1)])),
            ("two of two, rolled back", Signals { rollbacks: 1, ..of(&[Return(3), Return(3), Collect]) }),
            ("three of one", of(&[Return(1), Return(1), Return(1)])),
            (
                "one completes by itself",
                Signals { spontaneous: BTreeMap::from([(0, 2)]), ..of(&[Return(1), Return(1), Return(2)]) },
            ),
        ];
        if long() {
            all.extend([
                ("three of two", of(&[Return(3), Return(3), Return(3)])),
                (
                    "two of one, and a lock, rolled back and done again",
                    Signals { rollbacks: 1, ..of(&[Return(1), Return(1), Lock(0), Collect]) },
                ),
                ("three of one, and a lock", of(&[Return(1), Return(1), Return(1), Lock(0)])),
            ]);
        }
        all
    }

    fn has(&self, clause: Clause) -> bool {
        self.without != Some(clause)
    }

    fn children(&self) -> u8 {
        let sets = self.roles.iter().map(|role| match role {
            Role::Return(set) | Role::Lose(set) => *set,
            Role::Lock(child) => 1 << child,
            Role::Collect => 0,
        });
        let all = sets.chain(self.spontaneous.values().copied()).fold(0, |all, set| all | set);
        8 - all.leading_zeros() as u8
    }
}

/// A row of `blocked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Counter {
    /// `remaining`, as committed; `None` once the row is gone.
    committed: Option<u8>,
    /// Which transaction has it locked, and what that has made of it, if anything.
    holder: Option<usize>,
    changed: Option<Option<u8>>,
}

/// A row of `countdown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Signal {
    child: Child,
    ended: u8,
    lost: bool,
    /// Which transaction has left it, unless that has committed.
    by: Option<usize>,
    /// Which transaction has removed it, and has not committed.
    taken: Option<usize>,
}

/// What a task has to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Delta {
    ended: u8,
    lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Touch {
    No,
    LeftSignal,
    Locked,
}

/// Modes of a sign, a bit for each (`pg::lock::Mode`).
const BESIDE: u8 = 1;
const WITHIN: u8 = 2;
const ONLY: u8 = 4;

/// What counting is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fold {
    /// `fold::some`, of a session that was woken.
    Collect,
    /// `Steps::count`.
    First,
    /// After the question for the holder.
    Asked,
    /// With the sign to itself.
    Only,
}

/// What comes after counting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Open,
    Fold(Fold),
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum At {
    #[default]
    Idle,
    Counting(Then),
    Deferring(Then),
    Open,
    AskingAgain,
    WantingOnly,
    TakingSigns,
    ReadingSignals,
    ReadingCounters,
    Asking,
    Locking(Fold),
    Taking(Fold),
    HoldingOnly,
    Napping,
    Committing,
    /// Its commit is visible, and its signs are not yet freed; or the other way round without the clause.
    Ending,
    Over,
    StaysOpen,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Backend {
    at: At,
    /// What is to be counted down, by child; what could not be; what has nothing left to wait for.
    deltas: BTreeMap<Child, Delta>,
    not_had: BTreeMap<Child, Delta>,
    over: Set,
    touched: Vec<Touch>,
    /// Locked, and not noted yet. Only without [`Clause::NotedAtOnce`].
    to_note: Set,
    signs: Vec<u8>,
    /// `Steps`, and what a step has found so far.
    counted_all: bool,
    left_to_others: Set,
    ours: Set,
    sent: Vec<Delta>,
    lowest: Vec<Option<u8>>,
    all_sent: Set,
    free_to_leave: bool,
    leaves: bool,
    locked: Set,
    /// How many signals of each were there before the lock. Only without [`Clause::LockBeforeTake`].
    seen: Vec<u8>,
    settled: bool,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    counters: Vec<Counter>,
    signals: Vec<Signal>,
    backends: Vec<Backend>,
    rollbacks: u8,
    /// A session is to look (`wake::let_one_look`).
    woken: bool,
}

/// What each does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The call begins: it has removed live rows and seen the edges (`signal::deltas`), or has locked its counter, or its
    /// session was woken.
    Begin(usize),
    /// `blocked::count_one`: the next counter is counted down, or found busy.
    CountOne(usize),
    /// `signal::defer`.
    LeaveSignals(usize),
    /// `commit::before_commit` begins, if there is anything to look at.
    BeforeCommit(usize),
    /// `Signs::no_holder_commits`, of those that were left to others the last time.
    AskAgain(usize),
    /// `Signs::only`, of those that were found to be ours the last time.
    WantOnly(usize),
    /// `Signs::take`.
    TakeSigns(usize),
    /// `unsent::look`: the signals.
    ReadSignals(usize),
    /// `unsent::look`: the counters.
    ReadCounters(usize),
    /// `Signs::no_holder_commits`.
    Ask(usize),
    /// `fold::LOCK_COUNTERS`.
    LockCounters(usize, Fold),
    /// `signal::TAKE`, with a newer snapshot.
    TakeSignals(usize, Fold),
    /// `Signs::only`.
    HoldOnly(usize),
    /// `Patience::nap` is over.
    WakeUp(usize),
    /// The commit is visible; the locks on rows go with it.
    Commit(usize),
    /// The locks of the lock manager are released.
    FreeSigns(usize),
    /// A rollback.
    RollBack(usize),
    /// The client goes away, and leaves the transaction open.
    StayOpen(usize),
}

fn each(set: Set) -> impl Iterator<Item = Child> {
    (0..8).filter(move |child| set & 1 << child != 0)
}

impl Backend {
    fn new(children: usize) -> Self {
        Backend { touched: vec![Touch::No; children], signs: vec![0; children], ..Backend::default() }
    }

    fn touched(&self) -> Set {
        (0..self.touched.len()).filter(|c| self.touched[*c] != Touch::No).map(|c| 1 << c).sum()
    }

    /// `touched::look_again`.
    fn touch(&mut self, child: Child, touch: Touch) {
        let most = &mut self.touched[child as usize];
        *most = touch.max(*most);
    }

    /// `Signs::give_up`.
    fn give_up(&mut self) {
        self.signs.fill(0);
    }
}

impl State {
    /// Whether a sign can be had beside those of the others.
    fn is_free(&self, b: usize, child: Child, conflicts: u8) -> bool {
        let others = self.backends.iter().enumerate().filter(|(other, _)| *other != b);
        others.map(|(_, other)| other.signs[child as usize]).all(|held| held & conflicts == 0)
    }

    fn hold(&mut self, b: usize, child: Child, mode: u8) -> bool {
        let held = self.backends[b].signs[child as usize];
        if held & (mode | ONLY) != 0 {
            return true;
        }
        let conflicts = if mode == ONLY { BESIDE | WITHIN | ONLY } else { ONLY };
        let free = self.is_free(b, child, conflicts);
        if free {
            self.backends[b].signs[child as usize] |= mode;
        }
        free
    }

    fn no_holder_commits(&self, b: usize, set: Set) -> bool {
        each(set).all(|child| self.is_free(b, child, WITHIN | ONLY))
    }

    fn only(&mut self, b: usize, set: Set) -> bool {
        each(set).all(|child| self.hold(b, child, ONLY))
    }

    fn can_lock(&self, b: usize, child: Child) -> bool {
        let counter = &self.counters[child as usize];
        counter.committed.is_some()
            && counter.holder.is_none_or(|holder| holder == b)
            && counter.changed != Some(None)
    }

    /// The signals of a task that a snapshot of this backend shows.
    fn visible(&self, b: usize, child: Child) -> impl Iterator<Item = usize> {
        (0..self.signals.len()).filter(move |s| {
            let signal = &self.signals[*s];
            signal.child == child && signal.by.is_none_or(|by| by == b) && signal.taken.is_none()
        })
    }

    fn commit(&mut self, b: usize) {
        for counter in self.counters.iter_mut().filter(|c| c.holder == Some(b)) {
            counter.committed = counter.changed.unwrap_or(counter.committed);
            (counter.holder, counter.changed) = (None, None);
        }
        self.signals.retain(|s| s.taken != Some(b));
        self.signals.iter_mut().filter(|s| s.by == Some(b)).for_each(|s| s.by = None);
        self.signals.sort_unstable();
        self.backends[b].settled = true;
    }

    fn roll_back(&mut self, b: usize) {
        for counter in self.counters.iter_mut().filter(|c| c.holder == Some(b)) {
            (counter.holder, counter.changed) = (None, None);
        }
        self.signals.retain(|s| s.by != Some(b));
        self.signals.iter_mut().filter(|s| s.taken == Some(b)).for_each(|s| s.taken = None);
        self.signals.sort_unstable();
    }
}
