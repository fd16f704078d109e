//! Which steps there are in a state, what each makes of it, and what must hold.

use super::{At, Backend, Clause, Role, State, Step, Task, Wake};
use crate::check::Protocol;

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
        could.then_some("a call sleeps, and there is a task for it")
    }
}
