//! Deferred signals, and who counts them: `src/settle` (`signal.rs`, `fold.rs`, `unsent.rs`, `commit.rs`),
//! `src/store/blocked.rs`, `src/store/touched.rs`.
//!
//! Some return tasks that others wait for, at the same time; one locks a counter for something else (`add_dependencies`,
//! for instance); transactions are rolled back, and what they did is done once more; one may stay open for ever. Whom a
//! rollback wakes counts what he finds. Nobody else calls any more.
//!
//! **What must hold:** each end is counted once, by whoever commits. When all that can commit have, whatever has nothing
//! left to wait for is free. And nobody waits for a transaction that stays open.
//!
//! *The database.* What a transaction writes is seen by others with its commit, and by those who read with a dirty snapshot
//! at once. Who updates or locks a row has it until his end; who commits is seen first, and gives his locks of the lock
//! manager up then. A statement that takes rows with SKIP LOCKED takes each in one instant.
//!
//! *What is left out:* the sign that stands for many counters; tidying where signals pile up; giving up after five
//! seconds, and PREPARE TRANSACTION, after which nobody counts before somebody calls.

use std::collections::BTreeMap;

use crate::check::{Protocol, long};

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A counter that is busy is passed over, and a signal left for it (`signal::apply`).
    PassOverBusy,
    /// Whoever has touched a counter looks before he commits (`commit::before_commit`).
    LookBeforeCommit,
    /// He has a sign before he looks (`Steps::next`).
    SignBeforeLook,
    /// So does who has only left a signal.
    SignOfSignal,
    /// Who has the counter has another sign than who has not (`commit::mode`).
    SignOfHolder,
    /// Who commits with everything counted has the sign to himself (case 2).
    OnlyOne,
    /// He counts once more when he has.
    CountAmongOthersEnds,
    /// Who leaves the rest to the holder of the counter has asked whether he is past his look (case 3).
    AskForHolder,
    /// And asked before he tried the counter.
    AskBeforeTrying,
    /// The look sees signals that are not committed (`unsent::look`).
    DirtySignals,
    /// And the lower version of a counter that somebody is changing.
    LowestVersion,
    /// Signs are freed when the commit is visible.
    SignsOutliveCommit,
    /// Who naps has no sign.
    NoSignWhileWaiting,
    /// Whoever locks a counter looks, too, whatever for (`store::live`, `fold::try_lock_and_count`).
    WhoeverLocksLooks,
    /// A counter is noted for the look as soon as it is counted down, not after all others (`blocked::change`).
    NotedAtOnce,
    /// A rollback of who had touched a counter wakes somebody to count (`store::touched`).
    RollbackWakes,
    /// Who has left a signal to the holder of the counter wakes somebody, too, once his commit is visible. The holder may
    /// have been rolled back meanwhile, and whom that has woken has not seen the signal (`Steps::left_to_holder`).
    LeavingWakes,
    /// The counter is locked first, and its signals are taken with a newer snapshot (`fold::try_lock_and_count`).
    LockBeforeTake,
    /// The look reads signals before counters.
    SignalsBeforeCounters,
    /// Signals that somebody is removing do not count as sent; they are in his version of the counter.
    DoomedAreNotSent,
    /// What there is to count is counted before anybody is asked for anything (`Steps::count`).
    CountFirst,
}

/// Those that are needed, each by itself.
pub const NEEDED: [Clause; 17] = [
    Clause::PassOverBusy,
    Clause::LookBeforeCommit,
    Clause::SignBeforeLook,
    Clause::SignOfSignal,
    Clause::SignOfHolder,
    Clause::OnlyOne,
    Clause::CountAmongOthersEnds,
    Clause::AskForHolder,
    Clause::AskBeforeTrying,
    Clause::DirtySignals,
    Clause::LowestVersion,
    Clause::SignsOutliveCommit,
    Clause::NoSignWhileWaiting,
    Clause::WhoeverLocksLooks,
    Clause::NotedAtOnce,
    Clause::RollbackWakes,
    Clause::LeavingWakes,
];

/// Those that can go, each by itself, and nothing is lost: whoever counts looks once more after that, later than all who
/// may have been misled by what he was just doing, and counts what the first attempt has missed. They spare that second
/// round, and the proof does not need to speak of it.
pub const SPARED: [Clause; 4] =
    [Clause::LockBeforeTake, Clause::SignalsBeforeCounters, Clause::DoomedAreNotSent, Clause::CountFirst];

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
    /// Who is there.
    pub roles: Vec<Role>,
    /// Those of the children that complete by themselves, and who waits for them.
    pub spontaneous: BTreeMap<Child, Set>,
    /// How many transactions are rolled back.
    pub rollbacks: u8,
    /// Whether what was rolled back is done once more: else its worker has died.
    pub done_again: bool,
    /// Whether the first stays open.
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

    /// What is tried, with how many states each has.
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
    /// Who has it locked, and what he has made of it, if anything.
    holder: Option<usize>,
    changed: Option<Option<u8>>,
}

/// A row of `signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Signal {
    child: Child,
    ended: u8,
    lost: bool,
    /// Who has left it, unless he has committed.
    by: Option<usize>,
    /// Who has removed it, and has not committed.
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
    /// `fold::some`, of somebody who was woken.
    Collect,
    /// `Steps::count`.
    First,
    /// After the question for the holder.
    Asked,
    /// With the sign to himself.
    Only,
}

/// What comes after counting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Open,
    Fold(Fold),
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// Somebody is to look (`wake::somebody_to_look`).
    woken: bool,
}

/// Who does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The call begins: it has removed live rows and seen the edges (`signal::deltas`), or somebody was woken.
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
    /// `fold::LOCK`.
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
        Backend {
            at: At::Idle,
            deltas: BTreeMap::new(),
            not_had: BTreeMap::new(),
            over: 0,
            touched: vec![Touch::No; children],
            to_note: 0,
            signs: vec![0; children],
            counted_all: false,
            left_to_others: 0,
            ours: 0,
            sent: Vec::new(),
            lowest: Vec::new(),
            all_sent: 0,
            free_to_leave: false,
            leaves: false,
            locked: 0,
            seen: Vec::new(),
            settled: false,
        }
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

impl Signals {
    /// Of the dependencies of a child, how many there are, and how many have ended by a commit.
    fn dependencies(&self, state: &State, child: Child) -> (u8, u8) {
        let returns = self.roles.iter().zip(&state.backends).filter_map(|(role, backend)| match role {
            Role::Return(set) | Role::Lose(set) if set & 1 << child != 0 => Some(backend.settled),
            _ => None,
        });
        let spontaneous = self.spontaneous.iter().filter(|(_, set)| **set & 1 << child != 0);
        let ended: Vec<bool> = returns
            .chain(spontaneous.map(|(before, _)| state.counters[*before as usize].committed.is_none()))
            .collect();
        (ended.len() as u8, ended.iter().filter(|ended| **ended).count() as u8)
    }

    /// Whether one of them has ended in a way that the child does not survive.
    fn is_lost(&self, state: &State, child: Child) -> bool {
        let ended = self.roles.iter().zip(&state.backends).filter(|(_, backend)| backend.settled);
        ended.into_iter().any(|(role, _)| matches!(role, Role::Lose(set) if set & 1 << child != 0))
    }

    /// One counter, or what could not be counted, or the next level, or what comes after.
    fn go_on_counting(&self, state: &mut State, b: usize, then: Then) {
        let backend = &mut state.backends[b];
        if !backend.deltas.is_empty() {
            backend.at = At::Counting(then);
            return;
        }
        for child in each(std::mem::take(&mut backend.to_note)) {
            backend.touch(child, Touch::Locked);
        }
        if !backend.not_had.is_empty() {
            backend.at = At::Deferring(then);
            return;
        }
        for over in each(std::mem::take(&mut backend.over)) {
            for child in each(self.spontaneous.get(&over).copied().unwrap_or(0)) {
                backend.deltas.entry(child).or_default().ended += 1;
            }
        }
        if !backend.deltas.is_empty() {
            backend.at = At::Counting(then);
            return;
        }
        match then {
            Then::Open => backend.at = At::Open,
            Then::Fold(fold) => self.counted(state, b, fold, true),
        }
    }

    /// What follows an attempt to count.
    fn counted(&self, state: &mut State, b: usize, fold: Fold, changed: bool) {
        let backend = &mut state.backends[b];
        let locked = std::mem::take(&mut backend.locked);
        let asked_later = fold == Fold::Asked && !changed && !self.has(Clause::AskBeforeTrying);
        if asked_later {
            let free = state.no_holder_commits(b, state.backends[b].all_sent);
            state.backends[b].free_to_leave = free;
        }
        let backend = &mut state.backends[b];
        let others = backend.all_sent & !locked;
        if fold == Fold::Asked {
            backend.leaves = others != 0;
        }
        match fold {
            Fold::Collect => backend.at = At::Open,
            Fold::First => {
                backend.counted_all = !changed;
                self.look_again(backend);
            }
            Fold::Asked | Fold::Only if changed => self.look_again(backend),
            Fold::Asked if others != 0 && !backend.free_to_leave && self.has(Clause::AskForHolder) => {
                backend.left_to_others = others;
                self.wait(backend);
            }
            Fold::Asked if locked == 0 => backend.at = At::Committing,
            Fold::Asked => {
                backend.ours = locked;
                backend.at = if self.has(Clause::OnlyOne) { At::HoldingOnly } else { At::Committing };
            }
            Fold::Only => backend.at = At::Committing,
        }
    }

    fn wait(&self, backend: &mut Backend) {
        if self.has(Clause::NoSignWhileWaiting) {
            backend.give_up();
        }
        backend.at = At::Napping;
    }

    /// The next of the `Steps`.
    fn look_again(&self, backend: &mut Backend) {
        backend.sent.clear();
        backend.lowest.clear();
        backend.all_sent = 0;
        backend.free_to_leave = false;
        backend.leaves = false;
        backend.at = match () {
            () if backend.left_to_others != 0 => At::AskingAgain,
            () if backend.ours != 0 => At::WantingOnly,
            () if self.has(Clause::SignBeforeLook) => At::TakingSigns,
            () => self.first_read(),
        };
    }

    fn first_read(&self) -> At {
        if self.has(Clause::SignalsBeforeCounters) { At::ReadingSignals } else { At::ReadingCounters }
    }

    fn read_signals(&self, state: &mut State, b: usize) {
        let sent = (0..state.counters.len() as Child)
            .map(|child| {
                let there = state.signals.iter().filter(|s| s.child == child);
                there
                    .filter(|s| {
                        s.taken.is_none() || !self.has(Clause::DoomedAreNotSent) && s.taken != Some(b)
                    })
                    .filter(|s| s.by.is_none_or(|by| by == b) || self.has(Clause::DirtySignals))
                    .fold(Delta::default(), |sent, s| Delta {
                        ended: sent.ended + s.ended,
                        lost: sent.lost | s.lost,
                    })
            })
            .collect();
        state.backends[b].sent = sent;
    }

    fn read_counters(&self, state: &mut State, b: usize) {
        let lowest = state.counters.iter().map(|counter| match counter.changed {
            Some(own) if counter.holder == Some(b) => own,
            Some(Some(lower)) if self.has(Clause::LowestVersion) => {
                counter.committed.map(|left| left.min(lower))
            }
            _ => counter.committed,
        });
        state.backends[b].lowest = lowest.collect();
    }

    /// What the look has come to, when both have been read.
    fn judge(&self, state: &mut State, b: usize) {
        let backend = &mut state.backends[b];
        backend.all_sent = each(backend.touched())
            .filter(|child| {
                let sent = backend.sent[*child as usize];
                let enough = |left: u8| sent.lost || left <= sent.ended;
                sent.ended > 0 && backend.lowest[*child as usize].is_some_and(enough)
            })
            .map(|child| 1 << child)
            .sum();
        backend.sent.clear();
        backend.lowest.clear();
        if !self.has(Clause::SignBeforeLook) {
            // Too late, but taken all the same.
            backend.at = At::TakingSigns;
            return;
        }
        self.after_look(backend);
    }

    fn after_look(&self, backend: &mut Backend) {
        backend.at = match () {
            () if backend.all_sent == 0 => At::Committing,
            () if !backend.counted_all && self.has(Clause::CountFirst) => {
                backend.give_up();
                At::Locking(Fold::First)
            }
            () if self.has(Clause::AskBeforeTrying) => At::Asking,
            () => At::Locking(Fold::Asked),
        };
    }

    fn lock(&self, state: &mut State, b: usize, fold: Fold) {
        if !self.has(Clause::LockBeforeTake) {
            let seen =
                (0..state.counters.len() as Child).map(|c| state.visible(b, c).count() as u8).collect();
            state.backends[b].seen = seen;
        } else {
            self.lock_now(state, b, fold);
        }
        state.backends[b].at = At::Taking(fold);
    }

    fn lock_now(&self, state: &mut State, b: usize, fold: Fold) {
        let wanted = match fold {
            Fold::Collect => (0..state.counters.len() as Child)
                .filter(|c| state.visible(b, *c).next().is_some())
                .map(|c| 1 << c)
                .sum(),
            Fold::First | Fold::Asked => state.backends[b].all_sent,
            Fold::Only => state.backends[b].ours,
        };
        state.backends[b].locked = 0;
        for child in each(wanted) {
            if state.can_lock(b, child) {
                state.counters[child as usize].holder = Some(b);
                state.backends[b].locked |= 1 << child;
                if self.has(Clause::WhoeverLocksLooks) || fold != Fold::Collect {
                    state.backends[b].touch(child, Touch::Locked);
                }
            }
        }
    }

    fn take(&self, state: &mut State, b: usize, fold: Fold) {
        if !self.has(Clause::LockBeforeTake) {
            self.lock_now(state, b, fold);
        }
        let most = std::mem::take(&mut state.backends[b].seen);
        for child in each(state.backends[b].locked) {
            let most = most.get(child as usize).map_or(usize::MAX, |most| *most as usize);
            let taken: Vec<usize> = state.visible(b, child).take(most).collect();
            for s in taken {
                state.signals[s].taken = Some(b);
                let delta = state.backends[b].deltas.entry(child).or_default();
                delta.ended += state.signals[s].ended;
                delta.lost |= state.signals[s].lost;
            }
        }
        state.signals.retain(|s| s.by != Some(b) || s.taken != Some(b));
        state.signals.sort_unstable();
        if state.backends[b].deltas.is_empty() {
            self.counted(state, b, fold, false);
        } else {
            state.backends[b].at = At::Counting(Then::Fold(fold));
        }
    }

    fn count_one(&self, state: &mut State, b: usize, then: Then) {
        let Some((child, delta)) = state.backends[b].deltas.pop_first() else { unreachable!() };
        if state.can_lock(b, child) {
            let counter = &mut state.counters[child as usize];
            let before = counter.changed.flatten().or(counter.committed).unwrap_or(0);
            let left = if delta.lost { 0 } else { before.saturating_sub(delta.ended) };
            counter.holder = Some(b);
            counter.changed = Some((left > 0).then_some(left));
            let backend = &mut state.backends[b];
            match left {
                0 => backend.over |= 1 << child,
                _ if self.has(Clause::NotedAtOnce) => backend.touch(child, Touch::Locked),
                _ => backend.to_note |= 1 << child,
            }
        } else {
            state.backends[b].not_had.insert(child, delta);
        }
        self.go_on_counting(state, b, then);
    }

    fn defer(&self, state: &mut State, b: usize, then: Then) {
        for (child, Delta { ended, lost }) in std::mem::take(&mut state.backends[b].not_had) {
            // Without a counter it does not wait any more.
            if state.counters[child as usize].committed.is_some() {
                state.signals.push(Signal { child, ended, lost, by: Some(b), taken: None });
                state.backends[b].touch(child, Touch::LeftSignal);
            }
        }
        state.signals.sort_unstable();
        self.go_on_counting(state, b, then);
    }

    fn begin_call(&self, state: &mut State, b: usize) {
        match self.roles[b] {
            Role::Return(set) | Role::Lose(set) => {
                let delta = Delta { ended: 1, lost: matches!(self.roles[b], Role::Lose(_)) };
                state.backends[b].deltas = each(set).map(|child| (child, delta)).collect();
                self.go_on_counting(state, b, Then::Open);
            }
            Role::Lock(child) => {
                state.counters[child as usize].holder = Some(b);
                if self.has(Clause::WhoeverLocksLooks) {
                    state.backends[b].touch(child, Touch::Locked);
                }
                state.backends[b].at = At::Open;
            }
            Role::Collect => {
                state.woken = false;
                state.backends[b].at = At::Locking(Fold::Collect);
            }
        }
    }

    fn take_signs(&self, state: &mut State, b: usize) {
        let touched = state.backends[b].touched();
        let all = each(touched).all(|child| match state.backends[b].touched[child as usize] {
            Touch::Locked if self.has(Clause::SignOfHolder) => state.hold(b, child, WITHIN),
            Touch::LeftSignal if !self.has(Clause::SignOfSignal) => true,
            _ => state.hold(b, child, BESIDE),
        });
        let backend = &mut state.backends[b];
        match () {
            () if !all => self.wait(backend),
            () if !self.has(Clause::SignBeforeLook) => self.after_look(backend),
            () => {
                backend.left_to_others = 0;
                backend.at = self.first_read();
            }
        }
    }

    /// The end of a transaction; what is rolled back is done anew.
    fn over(&self, state: &mut State, b: usize, again: bool) {
        let settled = state.backends[b].settled;
        state.backends[b] = Backend::new(state.counters.len());
        state.backends[b].settled = settled;
        state.backends[b].at = if again { At::Idle } else { At::Over };
    }
}

impl Protocol for Signals {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        let children = self.children();
        let free = Counter { committed: None, holder: None, changed: None };
        let mut state = State {
            counters: vec![free; children as usize],
            signals: Vec::new(),
            backends: vec![Backend::new(children as usize); self.roles.len()],
            rollbacks: self.rollbacks,
            woken: false,
        };
        for child in 0..children {
            // One that waits for a counter that is there.
            state.counters[child as usize].committed = Some(0);
            let (all, _) = self.dependencies(&state, child);
            let locked = u8::from(all == 0);
            state.counters[child as usize].committed = Some(all + locked);
        }
        state
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (b, backend) in state.backends.iter().enumerate() {
            let may_roll_back = state.rollbacks > 0
                && !matches!(backend.at, At::Idle | At::Ending | At::Over | At::StaysOpen);
            if may_roll_back {
                steps.push(Step::RollBack(b));
            }
            let next = match backend.at {
                At::Idle => match self.roles[b] {
                    Role::Return(_) | Role::Lose(_) => Some(Step::Begin(b)),
                    // It waits for nobody here: who has to wait is the same as who begins later.
                    Role::Lock(child) => state.can_lock(b, child).then_some(Step::Begin(b)),
                    Role::Collect => state.woken.then_some(Step::Begin(b)),
                },
                At::Counting(_) => {
                    let next = backend.deltas.keys().next().copied().unwrap_or(0);
                    let waits = !self.has(Clause::PassOverBusy)
                        && state.counters[next as usize].holder.is_some_and(|holder| holder != b);
                    (!waits).then_some(Step::CountOne(b))
                }
                At::Deferring(_) => Some(Step::LeaveSignals(b)),
                At::Open => {
                    if self.stays_open && b == 0 {
                        steps.push(Step::StayOpen(b));
                    }
                    Some(Step::BeforeCommit(b))
                }
                At::AskingAgain => Some(Step::AskAgain(b)),
                At::WantingOnly => Some(Step::WantOnly(b)),
                At::TakingSigns => Some(Step::TakeSigns(b)),
                At::ReadingSignals => Some(Step::ReadSignals(b)),
                At::ReadingCounters => Some(Step::ReadCounters(b)),
                At::Asking => Some(Step::Ask(b)),
                At::Locking(fold) => Some(Step::LockCounters(b, fold)),
                At::Taking(fold) => Some(Step::TakeSignals(b, fold)),
                At::HoldingOnly => Some(Step::HoldOnly(b)),
                At::Napping => Some(Step::WakeUp(b)),
                At::Committing if self.has(Clause::SignsOutliveCommit) => Some(Step::Commit(b)),
                At::Committing => Some(Step::FreeSigns(b)),
                At::Ending if self.has(Clause::SignsOutliveCommit) => Some(Step::FreeSigns(b)),
                At::Ending => Some(Step::Commit(b)),
                At::Over | At::StaysOpen => None,
            };
            steps.extend(next);
        }
        steps
    }

    fn step(&self, state: &State, step: &Step) -> State {
        let mut state = state.clone();
        match *step {
            Step::Begin(b) => self.begin_call(&mut state, b),
            Step::CountOne(b) => {
                let At::Counting(then) = state.backends[b].at else { unreachable!() };
                self.count_one(&mut state, b, then);
            }
            Step::LeaveSignals(b) => {
                let At::Deferring(then) = state.backends[b].at else { unreachable!() };
                self.defer(&mut state, b, then);
            }
            Step::BeforeCommit(b) => {
                let backend = &mut state.backends[b];
                match backend.touched() != 0 && self.has(Clause::LookBeforeCommit) {
                    true => self.look_again(backend),
                    false => backend.at = At::Committing,
                }
            }
            Step::AskAgain(b) => {
                let free = state.no_holder_commits(b, state.backends[b].left_to_others);
                let backend = &mut state.backends[b];
                match () {
                    () if !free => self.wait(backend),
                    () if backend.ours != 0 => backend.at = At::WantingOnly,
                    () => backend.at = At::TakingSigns,
                }
            }
            Step::WantOnly(b) => {
                let had = state.only(b, state.backends[b].ours);
                let backend = &mut state.backends[b];
                if had { backend.at = At::TakingSigns } else { self.wait(backend) }
            }
            Step::TakeSigns(b) => self.take_signs(&mut state, b),
            Step::ReadSignals(b) => {
                self.read_signals(&mut state, b);
                match self.has(Clause::SignalsBeforeCounters) {
                    true => state.backends[b].at = At::ReadingCounters,
                    false => self.judge(&mut state, b),
                }
            }
            Step::ReadCounters(b) => {
                self.read_counters(&mut state, b);
                match self.has(Clause::SignalsBeforeCounters) {
                    true => self.judge(&mut state, b),
                    false => state.backends[b].at = At::ReadingSignals,
                }
            }
            Step::Ask(b) => {
                state.backends[b].free_to_leave = state.no_holder_commits(b, state.backends[b].all_sent);
                state.backends[b].at = At::Locking(Fold::Asked);
            }
            Step::LockCounters(b, fold) => self.lock(&mut state, b, fold),
            Step::TakeSignals(b, fold) => self.take(&mut state, b, fold),
            Step::HoldOnly(b) => {
                let had = state.only(b, state.backends[b].ours);
                let counts = self.has(Clause::CountAmongOthersEnds);
                let backend = &mut state.backends[b];
                match () {
                    () if !had => self.wait(backend),
                    () if counts => backend.at = At::Locking(Fold::Only),
                    () => backend.at = At::Committing,
                }
            }
            Step::WakeUp(b) => self.look_again(&mut state.backends[b]),
            Step::Commit(b) => {
                state.commit(b);
                state.woken |= state.backends[b].leaves && self.has(Clause::LeavingWakes);
                match self.has(Clause::SignsOutliveCommit)
                    && state.backends[b].signs.iter().any(|held| *held != 0)
                {
                    true => state.backends[b].at = At::Ending,
                    false => self.over(&mut state, b, self.roles[b] == Role::Collect),
                }
            }
            Step::FreeSigns(b) => match self.has(Clause::SignsOutliveCommit) {
                true => self.over(&mut state, b, self.roles[b] == Role::Collect),
                false => {
                    state.backends[b].give_up();
                    state.backends[b].at = At::Ending;
                }
            },
            Step::RollBack(b) => {
                state.rollbacks -= 1;
                state.woken |= self.has(Clause::RollbackWakes) && state.backends[b].touched() != 0;
                state.roll_back(b);
                self.over(&mut state, b, self.done_again || self.roles[b] == Role::Collect);
            }
            Step::StayOpen(b) => state.backends[b].at = At::StaysOpen,
        }
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        for (child, counter) in state.counters.iter().enumerate() {
            let (all, ended) = self.dependencies(state, child as Child);
            if all == 0 {
                continue;
            }
            match counter.committed {
                None if ended < all && !self.is_lost(state, child as Child) => {
                    return Some("a task is free before all that it waits for has ended");
                }
                None => {}
                Some(left) => {
                    let sent = state.signals.iter().filter(|s| s.child as usize == child && s.by.is_none());
                    if u32::from(left)
                        != u32::from(all - ended) + sent.map(|s| u32::from(s.ended)).sum::<u32>()
                    {
                        return Some("an end was counted twice, or not at all");
                    }
                }
            }
        }
        None
    }

    fn left_lying(&self, end: &State) -> Option<&'static str> {
        let waits = |b: &Backend| !matches!(b.at, At::Idle | At::Over | At::StaysOpen);
        if end.backends.iter().any(waits) {
            return Some("somebody waits for a transaction that stays open");
        }
        let lies = (0..end.counters.len()).any(|child| {
            let (all, ended) = self.dependencies(end, child as Child);
            let Counter { committed, holder, .. } = end.counters[child];
            let over = all > 0 && all == ended || self.is_lost(end, child as Child);
            // Whoever has the counter in a transaction that stays open looks when it ends.
            over && committed.is_some() && holder.is_none()
        });
        lies.then_some("a task has nothing left to wait for, and nobody counts that")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;

    #[test]
    fn whatever_has_nothing_left_to_wait_for_is_free() {
        for (name, signals) in Signals::all(None) {
            let states = check(&signals).unwrap_or_else(|failure| panic!("{name}: {failure}"));
            println!("signals, {name}: {states} states");
        }
    }

    #[test]
    fn some_clauses_spare_a_round() {
        for clause in SPARED {
            for (name, signals) in Signals::all(Some(clause)) {
                check(&signals).unwrap_or_else(|failure| panic!("without {clause:?}, {name}: {failure}"));
            }
        }
    }

    #[test]
    fn each_clause_is_needed() {
        let mut can_go = Vec::new();
        for clause in NEEDED {
            let failure =
                Signals::all(Some(clause)).into_iter().find_map(|(name, s)| Some((name, check(&s).err()?)));
            match failure {
                Some((name, failure)) => println!("signals without {clause:?}, {name}: {failure}"),
                None => can_go.push(clause),
            }
        }
        assert_eq!(can_go, [], "these clauses can go");
    }
}
