//! What a waiting call does.

use super::{
    At, Call, Clause, Fate, LONGEST, MINUTE, NEVER, Process, SECOND, Stage, State, Step, Tender, Thing, Time,
};

impl Tender {
    /// What the call can do next, whether the tender or a committer does anything or not.
    pub(super) fn next_of_call(&self, state: &State, c: usize) -> Option<Step> {
        let call = &state.calls[c];
        match call.at {
            At::Begin => Some(Step::Register(c)),
            At::Registered => Some(Step::ResetLatch(c)),
            At::Reset => Some(Step::Look(c)),
            At::Idle(_) => Some(Step::Sleep(c)),
            At::Owes(_) if self.has(Clause::LatchBeforePost) => Some(Step::SetLatch(c)),
            At::Owes(_) | At::HasSetLatch(_) => Some(Step::LookAtPost(c)),
            At::HasSeenPost(_) if self.has(Clause::LatchBeforePost) => Some(Step::Sleep(c)),
            At::HasSeenPost(_) => Some(Step::SetLatch(c)),
            At::Starts(_) => Some(Step::Start(c)),
            At::Asleep(until) => (call.latch || until <= state.now).then_some(Step::WakeUp(c)),
            At::TimeIsUp => Some(Step::LastLook(c)),
            At::Leaving => Some(Step::Leave(c)),
            At::Left => Some(Step::End(c)),
            At::Over => None,
        }
    }

    pub(super) fn look(&self, state: &mut State, c: usize) {
        let (action, until) = self.calls[c];
        let mine =
            |(n, thing): &(usize, &Thing)| thing.fate == Fate::Ready && self.thing(*n).action() == action;
        if let Some((n, _)) = state.things.iter().enumerate().find(mine) {
            state.things[n].fate = Fate::Granted;
            state.calls[c].at = At::Leaving;
            return;
        }
        let owed = self.undone(state).any(|due| due <= state.now);
        let counts = |due: &Time| *due > state.now || !self.has(Clause::OnlyWhatIsAhead);
        let next = self.undone(state).filter(counts).min();
        let next = next.filter(|_| self.has(Clause::SleepsUntilDue)).unwrap_or(NEVER);
        state.calls[c].at = match (until <= state.now, owed) {
            (true, true) => At::TimeIsUp,
            (true, false) => At::Leaving,
            (false, true) => At::Owes(next),
            (false, false) => At::Idle(next),
        };
    }

    /// The due times of what is visible and not done, in whatever hands it is.
    pub(super) fn undone(&self, state: &State) -> impl Iterator<Item = Time> {
        let undone = state.things.iter().enumerate().filter(|(_, thing)| thing.fate.is_undone());
        undone.map(|(n, _)| self.thing(n).due())
    }

    pub(super) fn set_latch(&self, state: &mut State, c: usize) {
        let there = |process: &&mut Process| process.stage != Stage::Off;
        state.processes.iter_mut().filter(there).for_each(|process| process.latch = true);
        match state.calls[c].at {
            At::HasSeenPost(next) => self.fall_asleep(state, c, next, Some(Clause::LooksAgainBesideTender)),
            At::Owes(next) => state.calls[c].at = At::HasSetLatch(next),
            _ => unreachable!(),
        }
    }

    pub(super) fn look_at_post(&self, state: &mut State, c: usize) {
        let (At::Owes(next) | At::HasSetLatch(next)) = state.calls[c].at else { unreachable!() };
        let taken = state.processes.iter().any(Process::has_post);
        state.calls[c].at = if taken { At::HasSeenPost(next) } else { At::Starts(next) };
    }

    pub(super) fn start(&self, state: &mut State, c: usize) {
        let At::Starts(next) = state.calls[c].at else { unreachable!() };
        let now = state.now;
        let not_before = state.calls[c].not_before;
        if not_before > now && self.has(Clause::OnceASecond) {
            return self.sleep_until(state, c, next.min(not_before));
        }
        if state.calls.iter().any(|call| call.starting) && self.has(Clause::Starting) {
            return self.fall_asleep(state, c, next, Some(Clause::LooksAgainBesideStart));
        }
        let Some(free) = state.processes.iter_mut().find(|process| process.stage == Stage::Off) else {
            state.calls[c].not_before = now + MINUTE;
            return self.fall_asleep(state, c, next, Some(Clause::LooksAgainAfterStart));
        };
        *free = Process { stage: Stage::Born, latch: false };
        state.starts += 1;
        let call = &mut state.calls[c];
        call.starts += 1;
        call.starting = true;
        call.not_before = now + SECOND;
        self.fall_asleep(state, c, next, Some(Clause::LooksAgainAfterStart));
    }

    /// `again`: by which clause it looks again within a second.
    pub(super) fn fall_asleep(&self, state: &mut State, c: usize, next: Time, again: Option<Clause>) {
        let bound = if again.is_some_and(|clause| self.has(clause)) { state.now + SECOND } else { NEVER };
        self.sleep_until(state, c, next.min(bound));
    }

    fn sleep_until(&self, state: &mut State, c: usize, time: Time) {
        let until = time.min(state.now + LONGEST).min(self.calls[c].1);
        state.calls[c].soon = until <= state.now + SECOND;
        state.calls[c].slept = true;
        state.calls[c].at = At::Asleep(until);
    }

    pub(super) fn sleep(&self, state: &mut State, c: usize) {
        match state.calls[c].at {
            At::Idle(next) => self.fall_asleep(state, c, next, None),
            At::HasSeenPost(next) => self.fall_asleep(state, c, next, Some(Clause::LooksAgainBesideTender)),
            _ => unreachable!(),
        }
    }

    pub(super) fn wake_up(&self, state: &mut State, c: usize) {
        let call = &mut state.calls[c];
        call.looks += u8::from(!call.latch);
        call.soon &= !self.has(Clause::SoonEndsBeforeTheLook);
        call.starting = false;
        call.at = At::Registered;
    }

    /// Locks what is due and in no other hands. It is done with the commit.
    pub(super) fn last_look(&self, state: &mut State, c: usize) {
        let now = state.now;
        for (n, thing) in state.things.iter_mut().enumerate() {
            if thing.fate == Fate::Lies && self.thing(n).due() <= now {
                state.kept |= 1 << n;
                if self.has(Clause::LastLook) {
                    thing.fate = Fate::HeldByCall(c);
                }
            }
        }
        state.calls[c].at = At::Leaving;
    }

    pub(super) fn leave(&self, state: &mut State, c: usize) {
        let Call { latch, slept, .. } = state.calls[c];
        state.calls[c] = Call { at: At::Left, ..Call::NEW };
        if latch {
            if self.has(Clause::HandsOnWakeUp) {
                self.wake_for_all(state, c);
            }
            return;
        }
        let left = |thing: &Thing| thing.fate.is_undone() && thing.fate != Fate::HeldByCall(c);
        let heard = slept || self.has(Clause::HandsOnFirstWakeUp);
        if heard && self.has(Clause::HandsOnTime) && state.things.iter().any(left) {
            state.wake_one(|_| true);
        }
    }

    /// A wake-up may have been meant for a task of the call's action, or for something that is due.
    fn wake_for_all(&self, state: &mut State, c: usize) {
        let own = self.calls[c].0;
        state.wake_one(|other| self.calls[other].0 == own);
        state.wake_one(|_| true);
    }

    /// What the last look has done is visible. One task of the call's own action is granted to it.
    pub(super) fn end_call(&self, state: &mut State, c: usize) {
        let mut has_task = false;
        for (n, thing) in state.things.iter_mut().enumerate() {
            if thing.fate == Fate::HeldByCall(c) {
                let granted = !has_task && self.thing(n).action() == self.calls[c].0;
                has_task |= granted;
                *thing = Thing { fate: if granted { Fate::Granted } else { Fate::Ready }, unpaid: !granted };
            }
        }
        state.calls[c] = Call { at: At::Over, ..Call::NEW };
    }

    pub(super) fn cancel(&self, state: &mut State, c: usize) {
        state.cancels -= 1;
        state.calls[c] = Call { at: At::Over, ..Call::NEW };
        if self.has(Clause::CancelHandsOn) {
            self.wake_for_all(state, c);
        }
    }
}

impl Call {
    pub(super) const NEW: Call = Call {
        at: At::Begin,
        latch: false,
        soon: false,
        starting: false,
        slept: false,
        not_before: 0,
        looks: 0,
        starts: 0,
    };

    pub(super) fn is_registered(&self) -> bool {
        !matches!(self.at, At::Begin | At::Left | At::Over)
    }
}

impl Fate {
    /// It is visible, and not done as far as other transactions see.
    pub(super) fn is_undone(self) -> bool {
        matches!(self, Fate::Lies | Fate::HeldByProcess | Fate::HeldByCall(_))
    }
}

impl State {
    /// Wakes the last of those calls that are registered, and not woken already.
    pub(super) fn wake_one(&mut self, which: impl Fn(usize) -> bool) {
        let asleep = |(c, call): &(usize, &mut Call)| which(*c) && !call.latch && call.is_registered();
        if let Some((_, call)) = self.calls.iter_mut().enumerate().rev().find(asleep) {
            call.latch = true;
        }
    }
}
