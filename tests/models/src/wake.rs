//! Sleeping and waking: `src/wake`, `src/pg/latch.rs`, and the calls that sleep (`src/verbs/own.rs`, `wait.rs`).
//!
//! Some wait for a task; others insert tasks, are granted some, or lock one for something else, and commit or not. Calls
//! that wait may be cancelled, and their time may be up.
//!
//! **What must hold:** when nobody does anything any more, nobody sleeps while there is a task that he could be granted. No
//! sleeper looks by himself here: whatever he gets he was woken for.
//!
//! *The database.* A commit is seen in one instant, the locks of the lock manager are released in a later one. A latch is
//! read and set in two. A list of those who are registered is made in one; whoever is in it may be gone when his turn comes.
//!
//! *What is left out:* times. Who sleeps knows when the next thing is due, and wakes one other when he leaves; the channel
//! for that is another one, and the rest is the same. What Postgres does to a latch in the middle of a look is made up for by
//! short sleeps, which `src/verbs/pace.rs` and its tests are about. Waking all (`wait_for_task`) is waking without a limit.

use crate::check::{Protocol, long};

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A waiter registers before it looks (`own::look`).
    RegisterBeforeLook,
    /// It resets its latch before it looks (`Waiter::before_look`).
    ResetBeforeLook,
    /// Whoever wakes makes the list again, for those who were just leaving (`latch::wake_among`).
    ListAgain,
    /// Who leaves hands on a wake-up that he has not used (`wake::hand_on`).
    HandOnWakeUp,
    /// He gives up his registrations before he looks for it.
    UnregisterBeforeThat,
    /// Who takes all that he wanted wakes one for what is left.
    HandOnRest,
    /// Who is ended by an error hands on, too (`waiters::give_up`).
    ErrorHandsOn,
    /// A rollback of who has taken a task wakes one for it (`notes::TAKEN`).
    RollbackWakes,
    /// So does the end of who had locked one that is still there (`notes::HELD`).
    EndOfLockWakes,
    /// One is woken once the locks of the lock manager are released (`Listener::unlocked`).
    PayAfterLocks,
    /// Who was woken for any action, and has found nothing, passes it on (`wake::pass_on`).
    PassOn,
    /// A wake-up that comes before the look counts, too, though the look forgets it (`Waiter::before_look`).
    NoticeBeforeReset,
    /// Who was woken already is passed over for another one (`latch::set_latch`).
    PassOverWoken,
}

/// Those that are needed, each by itself.
pub const NEEDED: [Clause; 12] = [
    Clause::RegisterBeforeLook,
    Clause::ResetBeforeLook,
    Clause::ListAgain,
    Clause::HandOnWakeUp,
    Clause::UnregisterBeforeThat,
    Clause::HandOnRest,
    Clause::ErrorHandsOn,
    Clause::RollbackWakes,
    Clause::EndOfLockWakes,
    Clause::PayAfterLocks,
    Clause::PassOn,
    Clause::NoticeBeforeReset,
];

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
    /// The same, and holds a lock of the lock manager until its end without which nobody is granted anything.
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
    /// Who is there.
    pub roles: Vec<Role>,
    /// The actions of tasks that are ready in the beginning.
    pub ready: Vec<Action>,
    /// How many calls that wait are cancelled, and how many come to the end of their time.
    pub cancels: u8,
    /// How many grants are rolled back.
    pub rollbacks: u8,
    /// How many calls come to the end of their time.
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

/// Whom to wake: `latch::wake`, `wake_highest`, `wake_next_lower`.
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
    /// The latest list, whose turn it is, whether his latch was seen unset, and how many were woken before it was made.
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
    /// Who has it locked: granted, inserted, or only locked.
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
    /// Whom its end has to wake (`notes::OWED`).
    owes: Vec<Whom>,
    /// Whom it is waking, one after the other.
    waking: Vec<Waking>,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    tasks: Vec<Task>,
    /// In the order in which they came.
    registered: Vec<(Channel, usize)>,
    backends: Vec<Backend>,
    /// Who has the lock of the lock manager.
    lock: Option<usize>,
    cancels: u8,
    rollbacks: u8,
    time_outs: u8,
}

/// Who does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `Registration::new`.
    Register(usize),
    /// `latch::reset`.
    ResetLatch(usize),
    /// The look begins: its snapshot.
    Snapshot(usize),
    /// `claim`: takes what the snapshot shows and nobody has locked; or sleeps, if there is nothing.
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
    /// `notes::pay`.
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

impl Wake {
    /// One more of a list, or a new list, or the end.
    fn go_on_waking(&self, state: &mut State, b: usize) {
        let Some(waking) = state.backends[b].waking.first_mut() else { return };
        let Some(list) = &waking.list else { return };
        let woken = waking.woken.count_ones() as usize;
        let enough = waking.there + woken - waking.before >= waking.limit;
        if waking.next < list.len() && !enough {
            return;
        }
        if woken == waking.before || !self.has(Clause::ListAgain) {
            let (whom, left) =
                (waking.whom, waking.limit.saturating_sub(waking.there.max(woken - waking.before)));
            state.backends[b].waking.remove(0);
            if matches!(whom, Whom::Last(Channel::Ready(_))) && left > 0 {
                // Before anything else that is to be done.
                state.wake(b, Whom::Highest, left);
                state.backends[b].waking.rotate_right(1);
            }
        } else {
            (waking.list, waking.next, waking.before) = (None, 0, woken);
        }
    }

    fn end(&self, state: &mut State, b: usize, commits: bool) {
        let mut owes = Vec::new();
        let ready = |action| Whom::Last(Channel::Ready(action));
        if let Some(t) = state.backends[b].task.take() {
            let (role, task) = (self.roles[b], &mut state.tasks[t]);
            task.by = None;
            match role {
                Role::Insert(_) | Role::InsertWithLock(_) => {
                    task.ready = commits;
                    owes.extend(commits.then_some(ready(task.action)));
                }
                Role::Lock(_) => owes.extend(self.has(Clause::EndOfLockWakes).then_some(ready(task.action))),
                _ if commits => task.ready = false,
                _ => owes.extend(self.has(Clause::RollbackWakes).then_some(ready(task.action))),
            }
        }
        if state.is_registered(b) {
            state.unregister(b);
            // It may have been woken for a task just then.
            owes.extend(self.has(Clause::ErrorHandsOn).then_some(match self.channel(b) {
                Channel::Any => Whom::Highest,
                channel => Whom::Last(channel),
            }));
        }
        state.backends[b].owes = owes;
        state.backends[b].waking.clear();
        state.backends[b].at = At::Ended;
    }

    fn pay(&self, state: &mut State, b: usize) {
        for whom in std::mem::take(&mut state.backends[b].owes) {
            state.wake(b, whom, 1);
        }
    }

    fn hand_on(&self, state: &mut State, b: usize) {
        let own = Channel::Ready(self.action(b));
        if state.backends[b].latch && self.waits(b) {
            if self.has(Clause::HandOnWakeUp) {
                state.wake(b, Whom::Last(own), 1);
                state.wake(b, Whom::Highest, 1);
            }
            return;
        }
        let asleep = state.registered.iter().any(|(channel, who)| {
            *who != b && (*channel == own || *channel == Channel::Any) && !state.backends[*who].latch
        });
        let full = state.backends[b].task;
        let left = full.is_some_and(|own_task| state.visible(self.action(b)) & !(1 << own_task) != 0);
        if asleep && left && self.has(Clause::HandOnRest) {
            state.wake(b, Whom::Last(own), 1);
        }
    }

    fn claim(&self, state: &mut State, b: usize) {
        let sees = std::mem::take(&mut state.backends[b].sees);
        let found = state.free(b, self.action(b)).find(|t| sees & 1 << t != 0);
        if let Some(t) = found {
            state.tasks[t].by = Some(b);
            state.backends[b].task = Some(t);
        }
        let woken = std::mem::take(&mut state.backends[b].woken);
        state.backends[b].at = match (found, self.waits(b)) {
            (Some(_), _) | (None, false) => At::Leaving,
            (None, true) => {
                if woken && self.channel(b) == Channel::Any && self.has(Clause::PassOn) {
                    state.wake(b, Whom::NextLower, 1);
                }
                At::InVain
            }
        };
    }

    /// What follows when nobody is left to be woken in between.
    fn next(&self, state: &State, b: usize, steps: &mut Vec<Step>) {
        let backend = &state.backends[b];
        let registers_late = !self.has(Clause::RegisterBeforeLook);
        match backend.at {
            At::Begin if self.waits(b) && registers_late => steps.push(Step::ResetLatch(b)),
            At::Begin if self.waits(b) => steps.push(Step::Register(b)),
            At::Begin if matches!(self.roles[b], Role::Own(_)) => steps.push(Step::Snapshot(b)),
            At::Begin => {
                let lacks = |action| state.free(b, action).next().is_none();
                let there = !matches!(self.roles[b], Role::Lock(action) if lacks(action));
                steps.extend(there.then_some(Step::Work(b)));
            }
            At::Registered if self.has(Clause::ResetBeforeLook) => steps.push(Step::ResetLatch(b)),
            At::Registered | At::Reset => steps.push(Step::Snapshot(b)),
            At::HasSnapshot => steps.push(Step::Claim(b)),
            At::InVain if !state.is_registered(b) => steps.push(Step::Register(b)),
            At::InVain if !self.has(Clause::ResetBeforeLook) => steps.push(Step::ResetLatch(b)),
            At::InVain | At::Asleep => {
                steps.extend(backend.latch.then_some(Step::WakeUp(b)));
                steps.extend((state.time_outs > 0).then_some(Step::TimeIsUp(b)));
            }
            At::Leaving if state.is_registered(b) && self.has(Clause::UnregisterBeforeThat) => {
                steps.push(Step::Unregister(b));
            }
            At::Leaving => steps.push(Step::HandOn(b)),
            At::Unregistered => steps.push(Step::HandOn(b)),
            At::Open if state.is_registered(b) => steps.push(Step::Unregister(b)),
            At::Open => {
                steps.push(Step::Commit(b));
                steps.extend((state.rollbacks > 0).then_some(Step::RollBack(b)));
            }
            At::Ended if self.has(Clause::PayAfterLocks) => steps.push(Step::Unlock(b)),
            At::Ended => steps.push(Step::Pay(b)),
            At::Unlocked if self.has(Clause::PayAfterLocks) => steps.push(Step::Pay(b)),
            At::Unlocked => steps.push(Step::Unlock(b)),
            At::Over => {}
        }
    }
}

impl Protocol for Wake {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        let inserted = self.roles.iter().filter_map(|role| match role {
            Role::Insert(action) | Role::InsertWithLock(action) => Some((*action, false)),
            _ => None,
        });
        let there = self.ready.iter().map(|action| (*action, true));
        let backend = Backend {
            at: At::Begin,
            latch: false,
            woken: false,
            sees: 0,
            task: None,
            owes: Vec::new(),
            waking: Vec::new(),
        };
        State {
            tasks: there.chain(inserted).map(|(action, ready)| Task { action, ready, by: None }).collect(),
            registered: Vec::new(),
            backends: vec![backend; self.roles.len()],
            lock: None,
            cancels: self.cancels,
            rollbacks: self.rollbacks,
            time_outs: self.time_outs,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (b, backend) in state.backends.iter().enumerate() {
            let called = !matches!(backend.at, At::Begin | At::Ended | At::Unlocked | At::Over);
            if state.cancels > 0 && self.waits(b) && called {
                steps.push(Step::Cancel(b));
            }
            match backend.waking.first() {
                Some(waking) if waking.list.is_none() => steps.push(Step::List(b)),
                Some(waking) if waking.sets => steps.push(Step::SetLatch(b)),
                Some(_) => steps.push(Step::ReadLatch(b)),
                None => self.next(state, b, &mut steps),
            }
        }
        steps
    }

    fn step(&self, state: &State, step: &Step) -> State {
        let mut state = state.clone();
        match *step {
            Step::Register(b) => {
                state.registered.push((self.channel(b), b));
                if state.backends[b].at == At::Begin {
                    state.backends[b].at = At::Registered;
                }
            }
            Step::ResetLatch(b) => {
                state.backends[b].woken |= state.backends[b].latch && self.has(Clause::NoticeBeforeReset);
                state.backends[b].latch = false;
                state.backends[b].at =
                    if state.backends[b].at == At::InVain { At::Asleep } else { At::Reset };
            }
            Step::Snapshot(b) => {
                state.backends[b].sees = state.visible(self.action(b));
                state.backends[b].at = At::HasSnapshot;
            }
            Step::Claim(b) => self.claim(&mut state, b),
            Step::WakeUp(b) => {
                state.backends[b].woken = true;
                state.backends[b].at = At::Registered;
            }
            Step::TimeIsUp(b) => {
                state.time_outs -= 1;
                state.backends[b].at = At::Leaving;
            }
            Step::Cancel(b) => {
                state.cancels -= 1;
                self.end(&mut state, b, false);
            }
            Step::Unregister(b) => {
                state.unregister(b);
                if state.backends[b].at == At::Leaving {
                    state.backends[b].at = At::Unregistered;
                }
            }
            Step::HandOn(b) => {
                self.hand_on(&mut state, b);
                state.backends[b].at = At::Open;
            }
            Step::Work(b) => {
                let action = self.action(b);
                let t = match self.roles[b] {
                    Role::Lock(_) => state.free(b, action).next(),
                    _ => (0..state.tasks.len()).rfind(|t| {
                        let task = &state.tasks[*t];
                        !task.ready && task.by.is_none() && task.action == action && *t >= self.ready.len()
                    }),
                };
                if let Some(t) = t {
                    state.tasks[t].by = Some(b);
                    state.backends[b].task = Some(t);
                }
                if matches!(self.roles[b], Role::InsertWithLock(_)) {
                    state.lock = Some(b);
                }
                state.backends[b].at = At::Open;
            }
            Step::Commit(b) => self.end(&mut state, b, true),
            Step::RollBack(b) => {
                state.rollbacks -= 1;
                self.end(&mut state, b, false);
            }
            Step::Unlock(b) => {
                state.lock = state.lock.filter(|holder| *holder != b);
                state.backends[b].at = if self.has(Clause::PayAfterLocks) { At::Unlocked } else { At::Over };
            }
            Step::Pay(b) => {
                self.pay(&mut state, b);
                state.backends[b].at = if self.has(Clause::PayAfterLocks) { At::Over } else { At::Unlocked };
            }
            Step::List(b) => {
                let whom = state.backends[b].waking[0].whom;
                let list = state.holders(b, whom);
                let waking = &mut state.backends[b].waking[0];
                waking.there = list.iter().filter(|who| waking.woken & 1 << **who != 0).count();
                waking.list = Some(list);
                self.go_on_waking(&mut state, b);
            }
            Step::ReadLatch(b) => {
                let waking = &state.backends[b].waking[0];
                let who = waking.list.as_ref().map_or(b, |list| list[waking.next]);
                let new = waking.woken & 1 << who == 0;
                let sets = new && (!state.backends[who].latch || !self.has(Clause::PassOverWoken));
                let waking = &mut state.backends[b].waking[0];
                if sets {
                    waking.sets = true;
                } else {
                    waking.next += 1;
                    self.go_on_waking(&mut state, b);
                }
            }
            Step::SetLatch(b) => {
                let waking = &mut state.backends[b].waking[0];
                let who = waking.list.as_ref().map_or(b, |list| list[waking.next]);
                waking.woken |= 1 << who;
                waking.sets = false;
                waking.next += 1;
                state.backends[who].latch = true;
                self.go_on_waking(&mut state, b);
            }
        }
        state
    }

    fn broken(&self, _state: &State) -> Option<&'static str> {
        None
    }

    fn left_lying(&self, end: &State) -> Option<&'static str> {
        let sleeps = |b: &usize| matches!(end.backends[*b].at, At::InVain | At::Asleep);
        let idle = (0..end.backends.len()).filter(sleeps);
        let could = idle.into_iter().any(|b| end.free(b, self.action(b)).next().is_some());
        could.then_some("somebody sleeps, and there is a task for him")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;

    #[test]
    fn nobody_sleeps_while_there_is_a_task_for_him() {
        for (name, wake) in Wake::all(None) {
            let states = check(&wake).unwrap_or_else(|failure| panic!("{name}: {failure}"));
            println!("wake, {name}: {states} states");
        }
    }

    /// Who finds fewer latches to set than there are tasks leaves a rest, and whoever takes a task wakes the next for it. To
    /// pass over those who were woken has all be awake at once instead of one after the other.
    #[test]
    fn passing_over_who_was_woken_saves_time_only() {
        for (name, wake) in Wake::all(Some(Clause::PassOverWoken)) {
            check(&wake).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    }

    #[test]
    fn each_clause_is_needed() {
        let mut can_go = Vec::new();
        for clause in NEEDED {
            let failure = Wake::all(Some(clause))
                .into_iter()
                .find_map(|(name, wake)| Some((name, check(&wake).err()?)));
            match failure {
                Some((name, failure)) => println!("wake without {clause:?}, {name}: {failure}"),
                None => can_go.push(clause),
            }
        }
        assert_eq!(can_go, [], "these clauses can go");
    }
}
