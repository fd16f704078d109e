//! Which steps there are in a state, what each makes of it, and what must hold.

use super::{At, Backend, Clause, Next, Pending, Slot, Slots, State, Step};
use crate::check::Protocol;

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
        (asleep && performing < self.most).then_some("a worker sleeps, and the limit would let it go on")
    }
}
