//! Sleeping and waking: `src/wake`, `src/pg/latch.rs`, and the calls that sleep for work (`src/verbs/own`,
//! `src/verbs/waiter.rs`).
//!
//! Some calls wait for a task; other transactions insert tasks, are granted some, or lock one for something else, and
//! commit or not. Calls that wait may be cancelled, and their time may be up.
//!
//! **What must hold:** when no backend can do anything any more, no call sleeps while there is a task that it could be
//! granted. A call that sleeps does not look by itself here: after its first look it looks only when it is woken.
//!
//! *The database.* A commit is seen in one instant, the locks of the lock manager are released in a later one. A latch
//! is read and set in two. A list of those that are registered is made in one; a backend of the list may be gone when
//! its turn comes.
//!
//! *What is left out:* times, which [`tender`](crate::tender) has. What Postgres does to a latch in the middle of a look is
//! made up for by short sleeps, which `src/verbs/pace.rs` and its tests are about. Waking all (for `wait_for_task`, for
//! instance), which sets each latch without a look at it.

mod clauses;
mod protocol;
mod steps;
#[cfg(test)]
mod tests;

use crate::check::long;
pub use clauses::{Clause, NEEDED};

type Action = u8;
/// A bit for each.
type Set = u8;

/// What a backend does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Waits for one task of an action, under its own channel.
    Wait(Action),
    /// The same, with more actions than it may have locks for: under the channel for any.
    WaitForAny(Action),
    /// Inserts one task.
    Insert(Action),
    /// The same, and holds a lock of the lock manager until its end: beside it no other backend is granted a task.
    InsertWithLock(Action),
    /// Is granted a task that is there, if it is; that may be rolled back.
    Own(Action),
    /// Locks a task that is there, and lets go of it.
    Lock(Action),
}

/// The protocol, and how much of it is tried.
#[derive(Clone, Debug)]
pub struct Wake {
    /// What is left out of it.
    pub without: Option<Clause>,
    /// The backends.
    pub roles: Vec<Role>,
    /// The actions of tasks that are ready in the beginning.
    pub ready: Vec<Action>,
    /// How many calls that wait may be cancelled.
    pub cancels: u8,
    /// How many transactions may be rolled back.
    pub rollbacks: u8,
    /// How many calls may come to the end of their time.
    pub time_outs: u8,
}

impl Wake {
    /// What is tried.
    pub fn all(without: Option<Clause>) -> Vec<(&'static str, Wake)> {
        use Role::{Insert, InsertWithLock, Lock, Own, Wait, WaitForAny};
        let of = |roles: &[Role]| Wake {
            without,
            roles: roles.to_vec(),
            ready: Vec::new(),
            cancels: 0,
            rollbacks: 0,
            time_outs: 0,
        };
        let mut all = vec![
            ("one for one", of(&[Wait(0), Insert(0)])),
            ("one behind a lock", of(&[Wait(0), InsertWithLock(0)])),
            (
                "two tasks, one of them there, for two",
                Wake { ready: vec![0], ..of(&[Wait(0), Wait(0), Insert(0)]) },
            ),
            ("time is up", Wake { time_outs: 1, ..of(&[Wait(0), Wait(0), Insert(0)]) }),
            ("cancelled", Wake { cancels: 1, ..of(&[Wait(0), Wait(0), Insert(0)]) }),
            (
                "a grant is rolled back",
                Wake { rollbacks: 1, ready: vec![0], ..of(&[Wait(0), Own(0), Wait(0)]) },
            ),
            ("a task is locked", Wake { ready: vec![0], ..of(&[Wait(0), Lock(0), Wait(0)]) }),
            ("for any action", of(&[WaitForAny(0), WaitForAny(1), Insert(0)])),
            ("for one and for any", Wake { time_outs: 1, ..of(&[Wait(0), WaitForAny(0), Insert(0)]) }),
        ];
        if long() {
            all.extend([
                ("two tasks for two", of(&[Wait(0), Wait(0), Insert(0), Insert(0)])),
                ("three for two", of(&[Wait(0), Wait(0), Wait(0), Insert(0), Insert(0)])),
                ("two cancelled", Wake { cancels: 2, ..of(&[Wait(0), Wait(0), Wait(0), Insert(0)]) }),
            ]);
        }
        all
    }

    fn has(&self, clause: Clause) -> bool {
        self.without != Some(clause)
    }

    fn action(&self, b: usize) -> Action {
        match self.roles[b] {
            Role::Wait(action) | Role::WaitForAny(action) | Role::Insert(action) => action,
            Role::InsertWithLock(action) | Role::Own(action) | Role::Lock(action) => action,
        }
    }

    fn waits(&self, b: usize) -> bool {
        matches!(self.roles[b], Role::Wait(_) | Role::WaitForAny(_))
    }

    fn channel(&self, b: usize) -> Channel {
        match self.roles[b] {
            Role::WaitForAny(_) => Channel::Any,
            _ => Channel::Ready(self.action(b)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Channel {
    Ready(Action),
    Any,
}

/// Which backends to wake: `latch::wake`, `wake_highest`, `wake_next_lower`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whom {
    Last(Channel),
    Highest,
    NextLower,
}

/// `latch::wake_among`, on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waking {
    whom: Whom,
    limit: usize,
    woken: Set,
    /// The latest list, whose turn it is, whether its latch was seen unset, and how many were woken before it was made.
    list: Option<Vec<usize>>,
    next: usize,
    sets: bool,
    before: usize,
    /// How many of those are in the list.
    there: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Task {
    action: Action,
    /// As committed.
    ready: bool,
    /// Which backend has it locked: granted, inserted, or only locked.
    by: Option<usize>,
}

/// Where a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Begin,
    Registered,
    Reset,
    HasSnapshot,
    /// A look has come to nothing: it passes on what it was woken for.
    InVain,
    Asleep,
    /// The call leaves, with a task or with nothing.
    Leaving,
    Unregistered,
    /// What it does is done; the transaction is open.
    Open,
    /// The end is visible; locks of the lock manager are not released yet.
    Ended,
    Unlocked,
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Backend {
    at: At,
    latch: bool,
    woken: bool,
    /// What the snapshot of its look shows.
    sees: Set,
    /// What it has been granted, has inserted or locked.
    task: Option<usize>,
    /// Which backends its end has to wake (`owed::OWED`).
    owes: Vec<Whom>,
    /// Which backends it is waking, one after the other.
    waking: Vec<Waking>,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    tasks: Vec<Task>,
    /// In the order in which they came.
    registered: Vec<(Channel, usize)>,
    backends: Vec<Backend>,
    /// Which backend has the lock of the lock manager.
    lock: Option<usize>,
    cancels: u8,
    rollbacks: u8,
    time_outs: u8,
}

/// What each does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `Registration::new`.
    Register(usize),
    /// `latch::reset`.
    ResetLatch(usize),
    /// The look begins: its snapshot.
    Snapshot(usize),
    /// `claim`: takes what the snapshot shows and no other has locked; or sleeps, if there is nothing.
    Claim(usize),
    /// A wake-up ends the sleep.
    WakeUp(usize),
    /// The time of the call is up.
    TimeIsUp(usize),
    /// The call is cancelled; its transaction is rolled back.
    Cancel(usize),
    /// `Waiter::leave`.
    Unregister(usize),
    /// `wake::hand_on`.
    HandOn(usize),
    /// Inserts, or locks.
    Work(usize),
    /// The commit is visible (`notes::on_end`).
    Commit(usize),
    /// The same for a rollback.
    RollBack(usize),
    /// Locks of the lock manager are released.
    Unlock(usize),
    /// `owed::pay`.
    Pay(usize),
    /// `latch::holders`.
    List(usize),
    /// `latch::is_latch_set` of the next.
    ReadLatch(usize),
    /// `SetLatch`.
    SetLatch(usize),
}

impl State {
    fn free(&self, b: usize, action: Action) -> impl Iterator<Item = usize> {
        let locked = self.lock.is_some_and(|holder| holder != b);
        (0..self.tasks.len()).filter(move |t| {
            let task = &self.tasks[*t];
            !locked && task.action == action && task.ready && task.by.is_none()
        })
    }

    fn visible(&self, action: Action) -> Set {
        let of = |(_, task): &(usize, &Task)| task.action == action && task.ready;
        self.tasks.iter().enumerate().filter(of).map(|(t, _)| 1 << t).sum()
    }

    /// `latch::holders`, in the order in which they are to be woken.
    fn holders(&self, b: usize, whom: Whom) -> Vec<usize> {
        let channel = if let Whom::Last(channel) = whom { channel } else { Channel::Any };
        let all = self.registered.iter().filter(|(at, who)| *at == channel && *who != b);
        let mut all: Vec<usize> = all.map(|(_, who)| *who).rev().collect();
        if !matches!(whom, Whom::Last(_)) {
            all.sort_unstable_by(|a, b| b.cmp(a));
        }
        if whom == Whom::NextLower {
            all.retain(|who| *who < b);
        }
        all
    }

    fn wake(&mut self, b: usize, whom: Whom, limit: usize) {
        let waking = Waking { whom, limit, woken: 0, list: None, next: 0, sets: false, before: 0, there: 0 };
        self.backends[b].waking.push(waking);
    }

    fn unregister(&mut self, b: usize) {
        self.registered.retain(|(_, who)| *who != b);
    }

    fn is_registered(&self, b: usize) -> bool {
        self.registered.iter().any(|(_, who)| *who == b)
    }
}
