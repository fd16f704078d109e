//! Slots: `src/store/slot`, and `src/claim` as far as it reserves them.
//!
//! Some claim a task each of a group with a limit, whose slots are made when they are needed; they perform it and come
//! back, or do not. Grants may be rolled back, and an entry may be another's by the time its slot is had.
//!
//! **What must hold:** no limit is exceeded at any moment. When nobody does anything any more, nobody waits for a slot that
//! is free.
//!
//! *The database.* As in the other models: rows that are made or changed are seen with the commit, who has locked a row has
//! it until then, and locks of the lock manager are released a moment later.
//!
//! *What is left out:* low-water marks, which [`marks`](crate::marks) has, and waking, which [`wake`](crate::wake) has: whom
//! somebody wakes looks again here. Limits that change, several limits of one task, and rates: a bucket is one row, and whoever has it has it alone.

use crate::check::{Protocol, long};

/// What the protocol of slots consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A slot is locked before it is taken, and passed over by others (`slot::FREE`).
    LockSlot,
    /// Who makes slots has a lock for that (`slot::lockable`).
    LockForMaking,
    /// He counts them with a snapshot that is newer than the lock (`slot::MAKE`).
    CountUnderLock,
    /// He has the lock until his commit is seen.
    LockOutlivesCommit,
    /// A slot is freed by the transaction that ends the performance (`slot::release`).
    FreedWithTheEnd,
    /// Who has made slots wakes somebody with his commit (`Allowances::settle`).
    MadeWakes,
    /// So does who has locked one and not used it.
    UnusedWakes,
    /// So does who frees one.
    FreedWakes,
    /// So does a rollback.
    RollbackWakes,
    /// A waiter who is woken and leaves with a task hands on.
    HandOn,
}

/// Those that are needed, each by itself.
pub const NEEDED: [Clause; 10] = [
    Clause::LockSlot,
    Clause::LockForMaking,
    Clause::CountUnderLock,
    Clause::LockOutlivesCommit,
    Clause::FreedWithTheEnd,
    Clause::MadeWakes,
    Clause::UnusedWakes,
    Clause::FreedWakes,
    Clause::RollbackWakes,
    Clause::HandOn,
];

/// The protocol, and how much of it is tried.
#[derive(Clone, Debug)]
pub struct Slots {
    /// What is left out of it.
    pub without: Option<Clause>,
    /// The limit.
    pub most: usize,
    /// How many claim a task.
    pub workers: usize,
    /// How many of them do not come back: they perform for ever.
    pub forever: usize,
    /// How many grants are rolled back, and how many find that the task is another's.
    pub rollbacks: u8,
    /// See above.
    pub in_vain: u8,
}

impl Slots {
    /// What is tried.
    pub fn all(without: Option<Clause>) -> Vec<Slots> {
        let of = |most, workers, forever| Slots { without, most, workers, forever, rollbacks: 0, in_vain: 0 };
        let mut all = vec![
            of(1, 2, 0),
            of(2, 2, 2),
            of(1, 3, 0),
            of(2, 3, 2),
            Slots { rollbacks: 1, ..of(1, 2, 0) },
            Slots { in_vain: 1, ..of(1, 2, 0) },
            Slots { rollbacks: 1, in_vain: 1, ..of(1, 3, 0) },
        ];
        if long() {
            all.push(Slots { rollbacks: 1, in_vain: 1, ..of(2, 4, 1) });
        }
        all
    }

    fn has(&self, clause: Clause) -> bool {
        self.without != Some(clause)
    }
}

/// What somebody has done to a slot, and not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pending {
    Locked,
    Made,
    Taken,
    /// Made and taken.
    MadeTaken,
    Freed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    /// `slot_no`.
    number: usize,
    /// Whether the row is committed, and whose it is.
    there: bool,
    task: Option<usize>,
    by: Option<(usize, Pending)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Begin,
    Short,
    Lacking(usize),
    Making(usize),
    Again,
    /// Has a slot, by its number.
    HasSlot(usize),
    Granted,
    InVain,
    Refused,
    Asleep,
    Performing,
    /// Only without [`Clause::FreedWithTheEnd`]: its slot is free for others, and its end is not.
    FreedEarly,
    Freed,
    /// An end is visible, and locks of the lock manager are not released; then the next.
    Ended(Next),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Perform,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Backend {
    at: At,
    woken: bool,
    owes: u8,
    performs: bool,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    slots: Vec<Slot>,
    making: Option<usize>,
    backends: Vec<Backend>,
    rollbacks: u8,
    in_vain: u8,
}

/// Who does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `slot::free`: locks a free one, if there is any.
    Find(usize),
    /// `slot::lacking`.
    Count(usize),
    /// `slot::lockable`.
    TryLock(usize),
    /// `slot::MAKE`.
    Make(usize),
    /// `take::these`, `slot::occupy`.
    Take(usize),
    /// The entry is another's.
    TakeInVain(usize),
    /// A look that comes to nothing is rolled back (`own::without_trace`).
    GiveUp(usize),
    /// The commit is visible.
    Commit(usize),
    /// So is the rollback.
    RollBack(usize),
    /// Locks are released, and whoever is to be woken is.
    Unlock(usize),
    /// Woken.
    WakeUp(usize),
    /// `slot::release`, by a return.
    Release(usize),
}

impl State {
    /// Rows that this backend sees.
    fn count(&self, b: usize) -> usize {
        let made = |s: &&Slot| matches!(s.by, Some((by, Pending::Made | Pending::MadeTaken)) if by == b);
        self.slots.iter().filter(|s| s.there || made(s)).count()
    }

    fn end(&mut self, b: usize, commits: bool) {
        for slot in &mut self.slots {
            let Some((_, pending)) = slot.by.filter(|(by, _)| *by == b) else { continue };
            slot.by = None;
            if commits {
                slot.there |= matches!(pending, Pending::Made | Pending::MadeTaken);
                match pending {
                    Pending::Taken | Pending::MadeTaken => slot.task = Some(b),
                    Pending::Freed => slot.task = None,
                    Pending::Locked | Pending::Made => {}
                }
            }
        }
        self.slots.retain(|s| s.there || s.by.is_some());
    }

    fn wake_one(&mut self) {
        let waits = |b: &&mut Backend| {
            !b.woken
                && !matches!(
                    b.at,
                    At::Granted | At::Performing | At::Freed | At::FreedEarly | At::Ended(_) | At::Over
                )
        };
        if let Some(backend) = self.backends.iter_mut().find(waits) {
            backend.woken = true;
        }
    }
}

impl Slots {
    fn find(&self, state: &mut State, b: usize, refused: At) {
        let found = state.slots.iter().position(|s| match s.by {
            Some((by, pending)) => {
                (by == b && pending == Pending::Made) || !self.has(Clause::LockSlot) && s.task.is_none()
            }
            None => s.task.is_none(),
        });
        state.backends[b].at = match found {
            Some(at) => {
                let slot = &mut state.slots[at];
                let made = slot.by.is_some_and(|(by, pending)| by == b && pending == Pending::Made);
                if !made && self.has(Clause::LockSlot) {
                    slot.by = Some((b, Pending::Locked));
                }
                At::HasSlot(slot.number)
            }
            None => refused,
        };
    }

    fn close(&self, state: &mut State, b: usize, commits: bool, next: Next) {
        state.end(b, commits);
        state.backends[b].at = At::Ended(next);
    }
}

impl Protocol for Slots {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        let backend = Backend { at: At::Begin, woken: false, owes: 0, performs: false };
        State {
            slots: Vec::new(),
            making: None,
            backends: vec![backend; self.workers],
            rollbacks: self.rollbacks,
            in_vain: self.in_vain,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (b, backend) in state.backends.iter().enumerate() {
            match backend.at {
                At::Begin | At::Again => steps.push(Step::Find(b)),
                At::Short => steps.push(Step::Count(b)),
                At::Lacking(_) => steps.push(Step::TryLock(b)),
                At::Making(_) => steps.push(Step::Make(b)),
                At::HasSlot(_) => {
                    steps.push(Step::Take(b));
                    steps.extend((state.in_vain > 0).then_some(Step::TakeInVain(b)));
                }
                At::Granted => {
                    steps.push(Step::Commit(b));
                    steps.extend((state.rollbacks > 0).then_some(Step::RollBack(b)));
                }
                At::InVain | At::Freed | At::FreedEarly => steps.push(Step::Commit(b)),
                At::Refused => steps.push(Step::GiveUp(b)),
                At::Asleep => steps.extend(backend.woken.then_some(Step::WakeUp(b))),
                At::Performing => steps.extend((b >= self.forever).then_some(Step::Release(b))),
                At::Ended(_) => steps.push(Step::Unlock(b)),
                At::Over => {}
            }
        }
        steps
    }

    fn step(&self, state: &State, step: &Step) -> State {
        let mut state = state.clone();
        match *step {
            Step::Find(b) => {
                let refused = if state.backends[b].at == At::Begin { At::Short } else { At::Refused };
                self.find(&mut state, b, refused);
            }
            Step::Count(b) => {
                let lacks = self.most.saturating_sub(state.count(b));
                state.backends[b].at = if lacks > 0 { At::Lacking(lacks) } else { At::Refused };
            }
            Step::TryLock(b) => {
                let At::Lacking(lacks) = state.backends[b].at else { unreachable!() };
                let free = state.making.is_none() || !self.has(Clause::LockForMaking);
                if free {
                    state.making = Some(b);
                }
                state.backends[b].at = if free { At::Making(lacks) } else { At::Refused };
            }
            Step::Make(b) => {
                let At::Making(seen) = state.backends[b].at else { unreachable!() };
                let now = self.most.saturating_sub(state.count(b));
                // The lowest that is missing, as far as it sees.
                let number = (0..).find(|n| state.slots.iter().all(|s| s.number != *n)).unwrap_or_default();
                if (if self.has(Clause::CountUnderLock) { now } else { seen }) > 0 {
                    state.slots.push(Slot { number, there: false, task: None, by: Some((b, Pending::Made)) });
                    state.slots.sort_unstable_by_key(|slot| slot.number);
                    state.backends[b].owes += u8::from(self.has(Clause::MadeWakes));
                }
                if !self.has(Clause::LockOutlivesCommit) {
                    state.making = None;
                }
                state.backends[b].at = At::Again;
            }
            Step::Take(b) => {
                let At::HasSlot(at) = state.backends[b].at else { unreachable!() };
                let Some(at) = state.slots.iter().position(|slot| slot.number == at) else { unreachable!() };
                let own = state.slots[at].by.filter(|(by, _)| *by == b);
                let pending = if own.is_some_and(|(_, p)| p == Pending::Made) {
                    Pending::MadeTaken
                } else {
                    Pending::Taken
                };
                state.slots[at].by = Some((b, pending));
                state.backends[b].at = At::Granted;
                state.backends[b].performs = true;
            }
            Step::TakeInVain(b) => {
                state.in_vain -= 1;
                state.backends[b].owes += u8::from(self.has(Clause::UnusedWakes));
                state.backends[b].at = At::InVain;
            }
            Step::GiveUp(b) => {
                state.end(b, false);
                state.making = state.making.filter(|holder| *holder != b);
                state.backends[b].owes = 0;
                state.backends[b].at = At::Asleep;
            }
            Step::Commit(b) => match state.backends[b].at {
                At::Granted => self.close(&mut state, b, true, Next::Perform),
                At::FreedEarly => {
                    state.end(b, true);
                    state.backends[b].at = At::Freed;
                }
                At::Freed => {
                    state.backends[b].performs = false;
                    self.close(&mut state, b, true, Next::Over);
                }
                _ => self.close(&mut state, b, true, Next::Over),
            },
            Step::RollBack(b) => {
                state.rollbacks -= 1;
                state.backends[b].performs = false;
                state.backends[b].owes = u8::from(self.has(Clause::RollbackWakes));
                self.close(&mut state, b, false, Next::Over);
            }
            Step::Unlock(b) => {
                let At::Ended(next) = state.backends[b].at else { unreachable!() };
                state.making = state.making.filter(|holder| *holder != b);
                let backend = &mut state.backends[b];
                let wakes =
                    backend.owes + u8::from(std::mem::take(&mut backend.woken) && self.has(Clause::HandOn));
                backend.owes = 0;
                backend.at = match next {
                    Next::Perform => At::Performing,
                    Next::Over => At::Over,
                };
                (0..wakes).for_each(|_| state.wake_one());
            }
            Step::WakeUp(b) => {
                state.backends[b].woken = false;
                state.backends[b].at = At::Begin;
            }
            Step::Release(b) => {
                if let Some(slot) = state.slots.iter_mut().find(|s| s.task == Some(b)) {
                    slot.by = Some((b, Pending::Freed));
                }
                state.backends[b].owes = u8::from(self.has(Clause::FreedWakes));
                state.backends[b].at =
                    if self.has(Clause::FreedWithTheEnd) { At::Freed } else { At::FreedEarly };
            }
        }
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        let performing = state.backends.iter().filter(|b| b.performs).count();
        (performing > self.most).then_some("more are in progress than the limit allows")
    }

    fn left_lying(&self, end: &State) -> Option<&'static str> {
        let asleep = end.backends.iter().any(|b| b.at == At::Asleep);
        let performing = end.backends.iter().filter(|b| b.performs).count();
        (asleep && performing < self.most).then_some("somebody sleeps, and the limit would let him go on")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;

    #[test]
    fn no_limit_is_exceeded_and_no_slot_left_free() {
        for slots in Slots::all(None) {
            let states = check(&slots).unwrap_or_else(|failure| panic!("{slots:?}: {failure}"));
            println!("slots, {slots:?}: {states} states");
        }
    }

    #[test]
    fn each_clause_is_needed() {
        let mut can_go = Vec::new();
        for clause in NEEDED {
            match Slots::all(Some(clause)).into_iter().find_map(|slots| check(&slots).err()) {
                Some(failure) => println!("slots without {clause:?}: {failure}"),
                None => can_go.push(clause),
            }
        }
        assert_eq!(can_go, [], "these clauses can go");
    }
}
