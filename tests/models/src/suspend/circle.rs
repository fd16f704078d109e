//! No cycles by suspensions: `src/returns/suspend.rs` (`link`, `check_cycles`), `src/insert/stored.rs` (`lock_stored`),
//! `src/locks/order.rs`, `src/locks/restart.rs`, `src/locks/guard.rs`.
//!
//! Held tasks are suspended for others, while other calls insert tasks between them. All that is stored would close one cycle.
//!
//! **What must hold:** no cycle is ever committed, one of the calls is refused, and no call waits for ever.
//!
//! *The database.* A suspension removes a row and puts another in its place: whatever locks the task waits for its end. An
//! insertion of tasks that only run after stored ones holds those FOR KEY SHARE; one that has stored tasks run after the new
//! ones as well takes the guard first, and locks all of them.
//!
//! *A call that would have to wait for a row with others locked* gives all up, and begins anew: then it locks what it has met
//! with in the order of the numbers. So does one that asks for the guard with rows locked.

mod cases;
mod clauses;

use crate::check::Protocol;
pub use clauses::{Clause, NEEDED};

type Task = u8;
/// An edge: this one before that one.
type Arc = (Task, Task);

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Suspends the first for the second.
    Suspend(Task, Task),
    /// Inserts the first, which runs after the second.
    Insert(Task, Task),
    /// Inserts the first, which runs after the second and before the third.
    Between(Task, Task, Task),
}

/// The protocol, and how much of it is tried.
#[derive(Clone, Debug)]
pub struct Circle {
    /// What is left out of it.
    pub without: Option<Clause>,
    /// How many tasks there are in the end.
    pub tasks: Task,
    /// What is stored at the beginning.
    pub stored: Vec<Arc>,
    /// What is done.
    pub calls: Vec<Call>,
}

impl Circle {
    fn has(&self, clause: Clause) -> bool {
        self.without != Some(clause)
    }
}

/// The row of a task, in whatever table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    there: bool,
    /// The call that has it FOR UPDATE, or has moved it.
    locked: Option<usize>,
    /// The calls that have it FOR KEY SHARE, a bit for each.
    shared: u8,
}

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// It begins; anew with the guard, or with all rows, if it has met with them before.
    Idle,
    /// It locks its rows in the order of their numbers, from this one.
    Locking(Task),
    Taking,
    Holding,
    Linking,
    Asking,
    Guarding,
    Checking,
    Open,
    Over,
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Backend {
    at: At,
    wants_guard: bool,
    wants_rows: bool,
    asked: bool,
    has_dependents: bool,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    rows: Vec<Row>,
    /// What is committed, and what a call has stored.
    arcs: Vec<(Arc, Option<usize>)>,
    guard: Option<usize>,
    backends: Vec<Backend>,
}

/// What a call does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `restart::restartable` begins, or begins anew.
    Begin(usize),
    /// `guard::guard`, before any row.
    TakeGuard(usize),
    /// `restart::lock_wanted`, or an insertion: the next row.
    LockNext(usize),
    /// `suspend::block`: the row of the task is moved.
    Take(usize),
    /// `live::lock_any`, FOR KEY SHARE.
    Hold(usize),
    /// The edges are stored.
    Link(usize),
    /// `suspend::DEPENDENTS`.
    Ask(usize),
    /// `order::before_guard`: the guard is there, or the call begins anew.
    WantGuard(usize),
    /// `cycle::stored_arcs` and `cycle::acyclic`: the call goes on, or is refused.
    Check(usize),
    /// `order::restart_with_live`.
    GiveUp(usize),
    /// The commit.
    Commit(usize),
}

fn has_cycle(arcs: &[Arc]) -> bool {
    let mut left = arcs.to_vec();
    loop {
        let before = left.len();
        let all = left.clone();
        left.retain(|(after, _)| all.iter().any(|(_, run)| run == after));
        if left.len() == before {
            return before > 0;
        }
    }
}

impl State {
    fn may_update(&self, b: usize, task: Task) -> bool {
        let row = &self.rows[task as usize];
        row.locked.is_none_or(|who| who == b) && row.shared & !(1 << b) == 0
    }

    fn may_share(&self, b: usize, task: Task) -> bool {
        self.rows[task as usize].locked.is_none_or(|who| who == b)
    }

    fn holds_any(&self, b: usize) -> bool {
        self.rows.iter().any(|row| row.locked == Some(b) || row.shared & 1 << b != 0)
    }

    fn free_locks(&mut self, b: usize) {
        for row in &mut self.rows {
            row.locked = row.locked.filter(|who| *who != b);
            row.shared &= !(1 << b);
        }
        self.guard = self.guard.filter(|who| *who != b);
    }

    fn roll_back(&mut self, b: usize) {
        self.free_locks(b);
        self.arcs.retain(|(_, by)| *by != Some(b));
    }

    fn visible(&self, b: usize) -> Vec<Arc> {
        let arcs = self.arcs.iter().filter(|(_, by)| by.is_none_or(|by| by == b));
        arcs.map(|(arc, _)| *arc).collect()
    }
}

impl Circle {
    /// The stored tasks that a call locks.
    fn named(&self, b: usize) -> Vec<Task> {
        let mut named = match self.calls[b] {
            Call::Suspend(task, on) => vec![task, on],
            Call::Insert(_, after) => vec![after],
            Call::Between(_, after, before) => vec![after, before],
        };
        named.sort_unstable();
        named
    }

    fn next_named(&self, b: usize, from: Task) -> Option<Task> {
        self.named(b).into_iter().find(|task| *task >= from)
    }

    /// What a call locks now, and whether it may; `None` if it locks nothing now.
    fn locks(&self, state: &State, b: usize) -> Option<bool> {
        match (state.backends[b].at, self.calls[b]) {
            (At::Locking(_), Call::Insert(..)) if !self.has(Clause::InsertionHolds) => None,
            (At::Locking(from), call) => self.next_named(b, from).map(|task| match call {
                Call::Insert(..) => state.may_share(b, task),
                _ => state.may_update(b, task),
            }),
            (At::Taking, Call::Suspend(task, _)) => Some(state.may_update(b, task)),
            (At::Holding, Call::Suspend(_, on)) if self.has(Clause::HoldAwaited) => {
                Some(state.may_share(b, on))
            }
            _ => None,
        }
    }

    fn after_begin(&self, backend: &Backend, b: usize) -> At {
        match self.calls[b] {
            Call::Suspend(..) if backend.wants_rows => At::Locking(0),
            Call::Suspend(..) if !backend.asked && !self.has(Clause::RemoveBeforeAsking) => At::Asking,
            Call::Suspend(..) => At::Taking,
            Call::Insert(..) | Call::Between(..) => At::Locking(0),
        }
    }
}

impl Protocol for Circle {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        let inserted = |task: Task| {
            self.calls.iter().any(|call| match call {
                Call::Insert(new, _) | Call::Between(new, ..) => *new == task,
                Call::Suspend(..) => false,
            })
        };
        let row = |task| Row { there: !inserted(task), ..Row::default() };
        let backends = self.calls.iter().map(|call| Backend {
            at: At::Idle,
            wants_guard: matches!(call, Call::Between(..)) && self.has(Clause::GuardOfInsertion),
            wants_rows: false,
            asked: false,
            has_dependents: false,
        });
        State {
            rows: (0..self.tasks).map(row).collect(),
            arcs: self.stored.iter().map(|arc| (*arc, None)).collect(),
            guard: None,
            backends: backends.collect(),
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (b, backend) in state.backends.iter().enumerate() {
            let may = self.locks(state, b).unwrap_or(true);
            // Rows that are locked in their order are waited for.
            let in_order = matches!(backend.at, At::Locking(_));
            if !may && !in_order && state.holds_any(b) && self.has(Clause::GiveUp) {
                steps.push(Step::GiveUp(b));
            }
            let next = match backend.at {
                At::Idle if backend.wants_guard && state.guard != Some(b) => {
                    state.guard.is_none().then_some(Step::TakeGuard(b))
                }
                At::Idle => {
                    let there = self.named(b).iter().all(|task| state.rows[*task as usize].there);
                    there.then_some(Step::Begin(b))
                }
                At::Locking(_) => may.then_some(Step::LockNext(b)),
                At::Taking => may.then_some(Step::Take(b)),
                At::Holding => may.then_some(Step::Hold(b)),
                At::Linking => Some(Step::Link(b)),
                At::Asking => Some(Step::Ask(b)),
                At::Guarding => Some(Step::WantGuard(b)),
                At::Checking => Some(Step::Check(b)),
                At::Open => Some(Step::Commit(b)),
                At::Over | At::Refused => None,
            };
            steps.extend(next);
        }
        steps
    }

    fn step(&self, state: &State, step: &Step) -> State {
        let mut state = state.clone();
        match *step {
            Step::Begin(b) => state.backends[b].at = self.after_begin(&state.backends[b], b),
            Step::TakeGuard(b) => state.guard = Some(b),
            Step::LockNext(b) => {
                let At::Locking(from) = state.backends[b].at else { unreachable!() };
                let suspends = matches!(self.calls[b], Call::Suspend(..));
                state.backends[b].at = match self.next_named(b, from) {
                    Some(task) => {
                        let row = &mut state.rows[task as usize];
                        match self.calls[b] {
                            Call::Insert(..) if !self.has(Clause::InsertionHolds) => {}
                            Call::Insert(..) => row.shared |= 1 << b,
                            _ => row.locked = Some(b),
                        }
                        At::Locking(task + 1)
                    }
                    None if suspends => At::Taking,
                    None => At::Linking,
                };
            }
            Step::Take(b) => {
                let Call::Suspend(task, _) = self.calls[b] else { unreachable!() };
                state.rows[task as usize].locked = Some(b);
                state.backends[b].at = At::Holding;
            }
            Step::Hold(b) => {
                let Call::Suspend(_, on) = self.calls[b] else { unreachable!() };
                if self.has(Clause::HoldAwaited) {
                    state.rows[on as usize].shared |= 1 << b;
                }
                state.backends[b].at = At::Linking;
            }
            Step::Link(b) => {
                let (arcs, next) = match self.calls[b] {
                    Call::Suspend(task, on) => {
                        (vec![(on, task)], if state.backends[b].asked { At::Guarding } else { At::Asking })
                    }
                    Call::Insert(new, after) => (vec![(after, new)], At::Open),
                    Call::Between(new, after, before) => (vec![(after, new), (new, before)], At::Checking),
                };
                state.arcs.extend(arcs.into_iter().map(|arc| (arc, Some(b))));
                state.arcs.sort_unstable();
                let asked_in_vain = next == At::Guarding && !state.backends[b].has_dependents;
                state.backends[b].at = if asked_in_vain { At::Open } else { next };
            }
            Step::Ask(b) => {
                let Call::Suspend(task, _) = self.calls[b] else { unreachable!() };
                let has_dependents = state.visible(b).iter().any(|(after, _)| *after == task);
                let early = !self.has(Clause::RemoveBeforeAsking);
                let backend = &mut state.backends[b];
                (backend.asked, backend.has_dependents) = (early, has_dependents);
                backend.at = match () {
                    () if early => At::Taking,
                    () if has_dependents && self.has(Clause::Check) => At::Guarding,
                    () => At::Open,
                };
            }
            Step::WantGuard(b) => {
                if state.guard == Some(b) || !self.has(Clause::Guard) {
                    state.backends[b].at = At::Checking;
                } else {
                    state.roll_back(b);
                    let backend = &mut state.backends[b];
                    (backend.wants_guard, backend.asked, backend.at) = (true, false, At::Idle);
                }
            }
            Step::Check(b) => {
                if has_cycle(&state.visible(b)) {
                    state.roll_back(b);
                    state.backends[b].at = At::Refused;
                } else {
                    state.backends[b].at = At::Open;
                }
            }
            Step::GiveUp(b) => {
                state.roll_back(b);
                let backend = &mut state.backends[b];
                (backend.wants_rows, backend.asked, backend.at) = (true, false, At::Idle);
            }
            Step::Commit(b) => {
                if let Call::Insert(new, _) | Call::Between(new, ..) = self.calls[b] {
                    state.rows[new as usize].there = true;
                }
                state.arcs.iter_mut().filter(|(_, by)| *by == Some(b)).for_each(|(_, by)| *by = None);
                state.arcs.sort_unstable();
                state.free_locks(b);
                state.backends[b].at = At::Over;
            }
        }
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        let committed: Vec<Arc> =
            state.arcs.iter().filter(|(_, by)| by.is_none()).map(|(arc, _)| *arc).collect();
        has_cycle(&committed).then_some("a cycle is stored")
    }

    fn left_lying(&self, end: &State) -> Option<&'static str> {
        let of = |at: At| end.backends.iter().filter(|backend| backend.at == at).count();
        let (over, refused) = (of(At::Over), of(At::Refused));
        match () {
            () if over + refused < end.backends.len() => Some("calls wait for each other"),
            () if refused != 1 => Some("more calls are refused than one"),
            () => None,
        }
    }
}
