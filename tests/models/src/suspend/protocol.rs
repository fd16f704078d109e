//! Which steps there are in a state, what each makes of it, and what must hold.

use super::{
    At, Awaited, Backend, Clause, Count, Counter, Edge, Ends, Entry, Purpose, Signal, Standing, State, Step,
    Suspend, WORKER, Who, each,
};
use crate::check::Protocol;

impl Protocol for Suspend {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        let all = self.ends.iter().fold(0, |all, set| all | set);
        let (after, required) = self.inserted.unwrap_or((0, 0));
        let waits = Counter {
            life: 0,
            wait_no: 0,
            suspended: false,
            now: Count {
                remaining: required as i8,
                spare: after.count_ones() as i8 - required as i8,
                failures: 0,
            },
            by: None,
            holder: None,
            changed: None,
        };
        let held = Entry { standing: Standing::Held, failures: 0, removed: None, locked: None };
        State {
            counter: self.inserted.map(|_| waits),
            entry: self.inserted.is_none().then_some(held),
            freed: Vec::new(),
            edges: each(after).map(|after| Edge { after, wait_no: 0, by: None, dropped: None }).collect(),
            signals: Vec::new(),
            awaited: vec![Awaited::default(); 8 - all.leading_zeros() as usize],
            backends: vec![Backend::new(); self.ends.len() + 2],
            lives: 0,
            purpose: Purpose { after, required, suspended: false, time_is_up: false },
            twice: false,
            time_outs: self.time_outs,
            rollbacks: self.rollbacks,
            woken: false,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (b, backend) in state.backends.iter().enumerate() {
            if state.rollbacks > 0 && !matches!(backend.at, At::Idle | At::Over) {
                steps.push(Step::RollBack(b));
            }
            match backend.at {
                At::Idle => self.begins(state, b, &mut steps),
                At::Holding(after) => {
                    let removed = state.awaited[after as usize].removed.is_some();
                    let waits = removed && self.has(Clause::KeyShare) && self.is_wanted(state, after);
                    steps.extend((!waits).then_some(Step::HoldNext));
                }
                At::Linking => steps.push(Step::Link),
                At::Removing => steps.extend(self.can_remove(state, b).then_some(Step::Remove(b))),
                At::ReadingEdges => steps.push(Step::ReadEdges(b)),
                At::LockingTask => steps.extend(self.can_lock_task(state, b).then_some(Step::LockTask(b))),
                At::LockingEdges => steps.extend(self.can_lock_edges(state, b).then_some(Step::LockEdges(b))),
                At::Losing => steps.push(Step::Lose(b)),
                At::Recounting => steps.push(Step::Recount(b)),
                At::Looking => steps.push(Step::Snapshot(b)),
                At::Counting => steps.push(Step::CountOne(b)),
                At::LeavingSignals => steps.push(Step::LeaveSignals(b)),
                At::Folding => steps.push(Step::Fold),
                At::Dropping => steps.push(Step::DropOpen(b)),
                At::Open => steps.push(Step::LookAndCommit(b)),
                At::Over => {}
            }
        }
        steps
    }

    fn step(&self, state: &State, step: &Step) -> State {
        let mut state = state.clone();
        match *step {
            Step::Own => state.entry.iter_mut().for_each(|entry| entry.standing = Standing::Held),
            Step::Block => self.block(&mut state),
            Step::HoldNext => {
                let At::Holding(after) = state.backends[WORKER].at else { unreachable!() };
                if self.is_wanted(&state, after) {
                    let awaited = &mut state.awaited[after as usize];
                    awaited.shared = !awaited.ended && self.has(Clause::KeyShare);
                    state.backends[WORKER].ended |= u8::from(awaited.ended) << after;
                }
                let next = after as usize + 1;
                let more = next < state.awaited.len();
                state.backends[WORKER].at = if more { At::Holding(next as u8) } else { At::Linking };
            }
            Step::Link => self.link(&mut state),
            Step::Remove(b) => {
                for after in each(self.ends[b - 1]) {
                    state.awaited[after as usize].removed = Some(b);
                }
                state.backends[b].at = match () {
                    () if self.is_deletion(b) && self.has(Clause::TaskBeforeEdges) => At::LockingTask,
                    () if self.is_deletion(b) => At::LockingEdges,
                    () if self.has(Clause::EdgesAfterRemoval) => At::ReadingEdges,
                    () => At::Looking,
                };
                self.skip_if_no_news(&mut state.backends[b]);
            }
            Step::ReadEdges(b) => self.read_edges(&mut state, b),
            Step::Snapshot(b) => {
                state.backends[b].seen = state.committed_counter().map(|c| (c.life, c.wait_no));
                state.backends[b].at = At::Counting;
            }
            Step::CountOne(b) => self.count_one(&mut state, b),
            Step::LeaveSignals(b) => self.leave_signals(&mut state, b),
            Step::LockTask(b) => self.lock_task(&mut state, b),
            Step::LockEdges(b) => self.lock_edges(&mut state, b),
            Step::Lose(b) => self.lose(&mut state, b),
            Step::Recount(b) => self.recount(&mut state, b),
            Step::LockOverdue => self.lock_overdue(&mut state),
            Step::Fold => self.fold(&mut state),
            Step::DropOpen(b) => self.drop_open(&mut state, b),
            Step::Collect => self.collect(&mut state),
            Step::LookAndCommit(b) => self.look_and_commit(&mut state, b),
            Step::RollBack(b) => self.roll_back(&mut state, b),
        }
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        let counter = state.committed_counter();
        if state.twice || state.entry.is_some() == counter.is_some() {
            return Some("the task is in two places, or in none");
        }
        let sends = |s: &&Signal| s.by.is_none() && counter.is_some_and(|c| c.wait_no == s.wait_no);
        let mut sent = Ends::default();
        state.signals.iter().filter(sends).for_each(|signal| sent.add(signal.ends));
        let edges = || state.edges.iter().filter(|edge| edge.by.is_none());
        let has_ended = |edge: &&Edge| state.awaited[edge.after as usize].ended;
        let open = edges().filter(|edge| !has_ended(edge));
        let ended = edges().filter(has_ended).count() as u8;
        let lost = self.inserted.is_none()
            && edges().any(|edge| has_ended(&edge) && self.loses & 1 << edge.after != 0);
        if let Some(counter) = counter {
            let open = open.filter(|edge| edge.wait_no == counter.wait_no).count() as i8;
            let Count { remaining, spare, failures } = counter.now;
            return match () {
                () if remaining + spare - sent.all() as i8 != open => {
                    Some("an end was counted twice, or not at all: `remaining` is wrong")
                }
                () if failures + sent.all() != ended => {
                    Some("an end was counted twice, or not at all: `failures` of a task that waits")
                }
                () if lost && sent.lost == 0 => Some("the task waits although a dependency is lost"),
                () => None,
            };
        }
        let Purpose { after, required, time_is_up, .. } = state.purpose;
        let Entry { standing, failures, .. } = state.entry?;
        let satisfied = state.ended(after & !self.loses).count_ones();
        let lost_of_these = state.ended(after & self.loses).count_ones();
        match standing {
            Standing::Aborted if lost_of_these + u32::from(required) <= after.count_ones() => {
                Some("the task has aborted, and can still get what it waits for")
            }
            Standing::Aborted => None,
            _ if !time_is_up && satisfied < u32::from(required) => {
                Some("the task is free before what this wait is for has ended")
            }
            _ if lost => Some("the task goes on although a dependency is lost"),
            _ if open.count() > 0 => Some("the task is free, and a dependency is open"),
            _ if failures != ended => {
                Some("an end was counted twice, or not at all: `failures` of a free task")
            }
            _ => None,
        }
    }

    fn left_lying(&self, end: &State) -> Option<&'static str> {
        let waits = |backend: &Backend| !matches!(backend.at, At::Idle | At::Over);
        if end.backends.iter().any(waits) {
            return Some("two transactions wait for each other");
        }
        let done = end.backends[WORKER].suspended == self.waits.len();
        let over = end.entry.is_some_and(|entry| match entry.standing {
            Standing::Ready => done,
            Standing::Held => false,
            Standing::Aborted => true,
        });
        (!over).then_some("all has ended, and the task is not free")
    }
}

impl Suspend {
    fn begins(&self, state: &State, b: Who, steps: &mut Vec<Step>) {
        if b == WORKER {
            let more = state.backends[b].suspended < self.waits.len();
            if let Some(entry) = state.entry.filter(|e| more && e.removed.is_none() && e.locked.is_none()) {
                steps.extend(match entry.standing {
                    Standing::Ready => Some(Step::Own),
                    Standing::Held => Some(Step::Block),
                    Standing::Aborted => None,
                });
            }
        } else if b == self.upkeep() {
            let locked = |counter: &Counter| counter.holder.is_some() && self.has(Clause::LockOverdue);
            let overdue = state.committed_counter().is_some_and(|c| c.suspended && !locked(c));
            steps.extend((overdue && state.time_outs > 0).then_some(Step::LockOverdue));
            steps.extend(state.woken.then_some(Step::Collect));
        } else if !self.has(Clause::EdgesAfterRemoval) && !self.is_deletion(b) {
            steps.push(Step::ReadEdges(b));
        } else if self.can_remove(state, b) {
            steps.push(Step::Remove(b));
        }
    }

    fn can_remove(&self, state: &State, b: Who) -> bool {
        each(self.ends[b - 1]).all(|after| !state.awaited[after as usize].shared)
    }

    fn can_lock_task(&self, state: &State, b: Who) -> bool {
        let concerned = !state.backends[b].gone.is_empty() || self.is_concerned(state, b);
        let in_place = || state.entry.is_some_and(|e| e.removed.is_none() && e.locked.is_none());
        !concerned || state.can_lock(b) || state.counter.is_none() && in_place()
    }

    fn can_lock_edges(&self, state: &State, b: Who) -> bool {
        let mut of_these = state.edges.iter().filter(|e| self.ends[b - 1] & 1 << e.after != 0);
        of_these.all(|e| e.dropped.is_none_or(|who| who == b))
    }

    fn is_wanted(&self, state: &State, after: u8) -> bool {
        state.there(self.waits[state.backends[WORKER].suspended]) & 1 << after != 0
    }
}
