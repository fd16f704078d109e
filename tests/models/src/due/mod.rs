//! What becomes due, and who hears of it: `src/upkeep/told.rs`, `src/wake/notes.rs`, and the calls that sleep.
//!
//! Some wait for work, each for tasks of one action. Others commit things that are due at a time: a grant with its deadline, a
//! schedule. Each is of use to the waiters for one action, for others too once a task is linked to it, or to nobody.
//!
//! **What must hold:** whenever there is nothing to do but to let time go by, nobody sleeps beside something that is due and of use
//! to him. And it ends: nobody wakes anybody for ever.
//!
//! *Time* goes on when nobody can do anything else, and a few times although somebody can: machines are slow. Who sleeps looks by
//! himself soon, or after the longest sleep, as it happens.
//!
//! *What is left out:* what waking itself consists of, which [`wake`](crate::wake) has: here one instant wakes somebody. That somebody
//! else may have in hand what is due, and what a look can do in its time.

mod clauses;
mod protocol;
#[cfg(test)]
mod tests;

use crate::check::long;
pub use clauses::{Clause, NEEDED};

type Action = u8;
/// A point in time.
type Time = u8;

/// Who sleeps for no longer than that needs not hear of what is due later (`wake::SOON`).
const SOON: Time = 1;
/// Nobody sleeps for longer (`wake::longest_sleep`).
const LONGEST: Time = 3;

/// Something that is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thing {
    /// When.
    pub due: Time,
    /// Of use to those who wait for tasks of this action; `None`: to nobody, but whoever waits for it has to look to know that.
    pub of_use_to: Option<Action>,
    /// The action that it looks like to the others.
    pub concerns: Action,
}

/// The protocol, and how much of it is tried.
#[derive(Clone, Debug)]
pub struct Due {
    /// What is left out of it.
    pub without: Option<Clause>,
    /// Who waits for tasks of which action.
    pub waiters: Vec<Action>,
    /// What is committed, each by a backend of its own.
    pub things: Vec<Thing>,
    /// Tasks that are linked to the first thing, by their actions.
    pub links: Vec<Action>,
    /// How many calls are cancelled, or come to the end of their time.
    pub leave: u8,
    /// How often time goes on although somebody could do something.
    pub slow: u8,
}

impl Due {
    /// What is tried.
    pub fn all(without: Option<Clause>) -> Vec<(&'static str, Due)> {
        let thing = |due, action| Thing { due, of_use_to: Some(action), concerns: action };
        let of = |waiters: &[Action], things: &[Thing]| Due {
            without,
            waiters: waiters.to_vec(),
            things: things.to_vec(),
            links: Vec::new(),
            leave: 0,
            slow: 1,
        };
        let useless = |concerns| Thing { due: 1, of_use_to: None, concerns };
        let mut all = vec![
            ("its own", of(&[0], &[thing(2, 0)])),
            ("that of another", of(&[0, 1], &[thing(2, 0)])),
            ("of the same action", of(&[0, 0], &[thing(1, 0), thing(2, 0)])),
            ("one earlier, committed later", of(&[0, 1], &[thing(1, 0), thing(2, 2)])),
            ("one leaves", Due { leave: 1, ..of(&[0, 1], &[thing(2, 0)]) }),
            ("linked to it", Due { links: vec![1], ..of(&[1, 2], &[thing(1, 0)]) }),
            ("of use to nobody", of(&[0, 1], &[useless(0), useless(1)])),
        ];
        if long() {
            all.extend([
                ("three of two", Due { slow: 0, ..of(&[0, 1, 2], &[thing(1, 0), thing(2, 2)]) }),
                ("two leave", Due { leave: 2, slow: 0, ..of(&[0, 1, 1], &[thing(2, 0)]) }),
                ("linked twice", Due { links: vec![1, 2], slow: 0, ..of(&[1, 2], &[thing(2, 0)]) }),
                ("slow machines", Due { slow: 3, ..of(&[0, 1], &[thing(2, 0)]) }),
            ]);
        }
        all
    }

    fn has(&self, clause: Clause) -> bool {
        self.without != Some(clause)
    }

    /// When time ends: everything is due by then, and everybody has looked since.
    fn end(&self) -> Time {
        self.things.iter().map(|thing| thing.due).max().unwrap_or(0) + LONGEST
    }
}

/// Where somebody who waits is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Registered; the look begins.
    Begin,
    /// The look has its snapshot, of this time.
    HasSnapshot(Time),
    Asleep {
        until: Time,
    },
    /// Has what he waited for, or nothing; he is not registered any more.
    Leaving,
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    at: At,
    latch: bool,
    /// Others take it that he looks soon.
    soon: bool,
    /// What the look sees: a bit for each thing, and for each link.
    sees: u8,
    links: u8,
    /// Up to when he has told others (0: nothing).
    told: Time,
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// It has done this by that time, and is open.
    Open(Option<Time>),
    /// It is visible, and has woken nobody so far.
    Visible(Option<Time>),
    Over,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: Time,
    waiters: Vec<Waiter>,
    /// Those that commit the things, then those that commit the links.
    commits: Vec<Stage>,
    /// Those of the things that nobody need look after any more.
    done: u8,
    leave: u8,
    slow: u8,
}

/// Who does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The look of a waiter begins.
    Snapshot(usize),
    /// It does what is due and of use, or tells others, and sleeps: for a short or a long time.
    Look(usize, Time),
    /// A wake-up, or its time, ends the sleep.
    WakeUp(usize),
    /// The time of the call is up.
    TimeIsUp(usize),
    /// It is cancelled.
    Cancel(usize),
    /// `wake::hand_on`.
    HandOn(usize),
    /// A transaction links a task to the first thing.
    Link(usize),
    /// A commit is visible.
    Commit(usize),
    /// `notes::pay`.
    Pay(usize),
    /// Time goes on.
    Tick,
}
