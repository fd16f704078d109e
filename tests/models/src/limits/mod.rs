//! Slots: `src/store/slot`, and `src/claim` as far as it reserves them.
//!
//! Workers claim a task each of a group with a limit, whose slots are made when they are needed. They perform the task
//! and come back, or do not. Grants may be rolled back. And an entry may be another worker's by the time that the claim
//! has its slot.
//!
//! **What must hold:** no limit is exceeded at any moment. When no worker can do anything any more, none waits for a
//! slot that is free.
//!
//! *The database.* As in the other models: rows that are made or changed are seen with the commit, a transaction that
//! has locked a row has it until then, and locks of the lock manager are released a moment later.
//!
//! *What is left out:* low-water marks, which [`marks`](crate::marks) has, and how waking is done, which [`wake`](crate::wake)
//! has: a worker that is woken looks again here. Limits that change, several limits of one task, and rates: a bucket is one
//! row, and the transaction that has it has it alone.

mod clauses;
mod protocol;
mod steps;
#[cfg(test)]
mod tests;

use crate::check::long;
pub use clauses::{Clause, NEEDED};

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
    /// How many grants may be rolled back.
    pub rollbacks: u8,
    /// How many claims may find that the task is another's.
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

/// What a transaction has done to a slot, and not committed.
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

/// What each does.
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
    /// `take::chosen`, `slot::occupy`.
    Take(usize),
    /// The entry is another's.
    TakeInVain(usize),
    /// The look of a waiting call that comes to nothing is rolled back (`wait::look_once`).
    GiveUp(usize),
    /// The commit is visible.
    Commit(usize),
    /// So is the rollback.
    RollBack(usize),
    /// Locks are released, and the workers that are to be woken are.
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
