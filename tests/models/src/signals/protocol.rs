//! Which steps there are in a state, what each makes of it, and what must hold.

use super::{At, Backend, Child, Clause, Counter, Fold, Role, Signals, State, Step};
use crate::check::Protocol;

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
                    // It waits for no other here: to have to wait is the same as to begin later.
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
            return Some("a transaction waits for one that stays open");
        }
        let lies = (0..end.counters.len()).any(|child| {
            let (all, ended) = self.dependencies(end, child as Child);
            let Counter { committed, holder, .. } = end.counters[child];
            let over = all > 0 && all == ended || self.is_lost(end, child as Child);
            // A transaction that has the counter and stays open looks when it ends.
            over && committed.is_some() && holder.is_none()
        });
        lies.then_some("a task has nothing left to wait for, and no transaction counts that")
    }
}
