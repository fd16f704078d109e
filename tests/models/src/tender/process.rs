//! What the tender does, and what is committed.

use super::{Brings, Clause, Fate, NEVER, Process, SECOND, Stage, State, Step, Tender, Thing, Time};

impl Tender {
    /// What the process does next, unless it leaves or is killed.
    pub(super) fn next_of_process(&self, state: &State, p: usize) -> Option<Step> {
        let process = &state.processes[p];
        match process.stage {
            Stage::Off => None,
            Stage::Born | Stage::CalledAgain => Some(Step::Take(p)),
            Stage::Begin if self.has(Clause::TenderResetsFirst) => Some(Step::BeginLook(p)),
            Stage::Begin | Stage::Working => Some(Step::Work(p)),
            Stage::Holds(_) => Some(Step::Commit(p)),
            Stage::HasLooked(_) => Some(Step::BeginLook(p)),
            Stage::Resting(due) => (process.latch || due <= state.now).then_some(Step::Resume(p)),
            Stage::Leaves if !self.has(Clause::PostBeforeLatch) => Some(Step::LookAtLatch(p)),
            Stage::Leaves | Stage::Unheard => Some(Step::GiveUp(p)),
            Stage::GivenUp => Some(Step::LookAtLatch(p)),
        }
    }

    pub(super) fn take(&self, state: &mut State, p: usize) {
        let taken = state.processes.iter().any(Process::has_post);
        if taken && self.has(Clause::Post) {
            state.end_process(p);
        } else {
            state.processes[p].stage = Stage::Begin;
        }
    }

    pub(super) fn begin_look(&self, state: &mut State, p: usize) {
        let process = &mut state.processes[p];
        process.latch = false;
        process.stage = match process.stage {
            Stage::HasLooked(due) => Stage::Resting(due),
            _ => Stage::Working,
        };
    }

    pub(super) fn work(&self, state: &mut State, p: usize) {
        let now = state.now;
        let due = |(n, thing): &(usize, &mut Thing)| thing.fate == Fate::Lies && self.thing(*n).due() <= now;
        if let Some((n, thing)) = state.things.iter_mut().enumerate().find(due) {
            thing.fate = Fate::HeldByProcess;
            state.processes[p].stage = Stage::Holds(n);
            return;
        }
        // What is due already is in other hands.
        let next = self.undone(state).map(|due| if due <= now { now + SECOND } else { due }).min();
        let next = next.unwrap_or(NEVER);
        let stage =
            if self.has(Clause::TenderResetsFirst) { Stage::Resting(next) } else { Stage::HasLooked(next) };
        state.processes[p].stage = stage;
    }

    pub(super) fn commit(&self, state: &mut State, p: usize) {
        let Stage::Holds(n) = state.processes[p].stage else { unreachable!() };
        state.things[n] = Thing { fate: Fate::Ready, unpaid: true };
        state.processes[p].stage = Stage::Working;
    }

    /// Whether the tender may leave.
    pub(super) fn may_leave(&self, state: &State, p: usize) -> bool {
        let process = &state.processes[p];
        matches!(process.stage, Stage::Resting(due) if due > state.now && !process.latch)
    }

    pub(super) fn give_up(&self, state: &mut State, p: usize) {
        if state.processes[p].stage == Stage::Leaves && self.has(Clause::LooksAtLatch) {
            state.processes[p].stage = Stage::GivenUp;
        } else {
            state.end_process(p);
        }
    }

    pub(super) fn look_at_latch(&self, state: &mut State, p: usize) {
        let process = &mut state.processes[p];
        match (process.stage, process.latch) {
            (Stage::Leaves, true) => process.stage = Stage::Begin,
            (Stage::Leaves, false) => process.stage = Stage::Unheard,
            (_, true) => process.stage = Stage::CalledAgain,
            (_, false) => state.end_process(p),
        }
    }

    pub(super) fn kill(&self, state: &mut State, p: usize) {
        state.kills -= 1;
        if let Stage::Holds(n) = state.processes[p].stage {
            state.things[n].fate = Fate::Lies;
        }
        state.end_process(p);
    }

    pub(super) fn add(&self, state: &mut State, n: usize) {
        let ready = matches!(self.thing(n), Brings::Ready(_));
        state.things[n] = Thing { fate: if ready { Fate::Ready } else { Fate::Lies }, unpaid: true };
    }

    pub(super) fn pay(&self, state: &mut State, n: usize) {
        state.things[n].unpaid = false;
        let of_action = |c: usize| self.calls[c].0 == self.thing(n).action();
        match state.things[n].fate {
            Fate::Ready | Fate::Granted if self.has(Clause::ReadyWakes) => state.wake_one(of_action),
            fate if fate.is_undone() && self.has(Clause::AddingWakes) => {
                let ahead: Time = self.thing(n).due().saturating_sub(state.now);
                let in_time = ahead >= SECOND && state.calls.iter().any(|call| call.soon);
                if !in_time {
                    state.wake_one(|_| true);
                }
            }
            _ => {}
        }
    }

    /// Does what is due and in no other hands.
    pub(super) fn pass_by(&self, state: &mut State) {
        state.passers -= 1;
        let now = state.now;
        for (n, thing) in state.things.iter_mut().enumerate() {
            if thing.fate == Fate::Lies && self.thing(n).due() <= now {
                *thing = Thing { fate: Fate::Ready, unpaid: true };
            }
        }
    }
}

impl State {
    fn end_process(&mut self, p: usize) {
        self.processes[p] = Process { stage: Stage::Off, latch: false };
    }
}
