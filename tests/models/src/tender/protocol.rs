//! Which steps there are in a state, what each makes of it, and what must hold.

use super::{At, Brings, Call, Fate, Process, Stage, State, Step, Tender, Thing};
use crate::check::Protocol;

pub(super) const LATE: &str = "something is due, and late, while a call waits";
pub(super) const TWO: &str = "two processes hold the post";
pub(super) const SPINS: &str = "a call looks again and again without a reason";
pub(super) const STARTS: &str = "more processes are started in a second than there may be";
pub(super) const LOST: &str = "what a call has found with its last look is never done";

impl Protocol for Tender {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        let there = self.there.iter().map(|brings| match brings {
            Brings::Ready(_) => Fate::Ready,
            Brings::Due(..) => Fate::Lies,
        });
        let added = self.added.iter().map(|_| Fate::NotCommitted);
        let mut processes = vec![Process { stage: Stage::Off, latch: false }; self.slots];
        if self.is_there {
            processes[0].stage = Stage::Begin;
        }
        State {
            now: 0,
            calls: vec![Call::NEW; self.calls.len()],
            processes,
            things: there.chain(added).map(|fate| Thing { fate, unpaid: false }).collect(),
            kills: self.kills,
            passers: self.passers,
            cancels: self.cancels,
            slow: self.slow,
            late: 0,
            starts: 0,
            kept: 0,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = self.pressing(state);
        let is_idle = steps.is_empty();
        if state.now < self.end() && (is_idle || state.slow > 0) {
            steps.push(Step::Tick);
        }
        for (p, process) in state.processes.iter().enumerate() {
            if self.may_leave(state, p) {
                steps.push(Step::BeginToLeave(p));
            }
            if state.kills > 0 && process.stage != Stage::Off {
                steps.push(Step::Kill(p));
            }
        }
        for (c, call) in state.calls.iter().enumerate() {
            let is_ending = matches!(call.at, At::TimeIsUp | At::Leaving);
            if state.cancels > 0 && call.is_registered() && !is_ending {
                steps.push(Step::Cancel(c));
            }
        }
        let open = |n: &usize| state.things[*n].fate == Fate::NotCommitted;
        steps.extend((0..state.things.len()).filter(open).map(Step::Add));
        if state.passers > 0 && self.undone(state).any(|due| due <= state.now) {
            steps.push(Step::PassBy);
        }
        steps
    }

    fn step(&self, state: &State, step: &Step) -> State {
        let mut state = state.clone();
        match *step {
            Step::Register(c) => state.calls[c].at = At::Registered,
            Step::ResetLatch(c) => {
                state.calls[c].latch = false;
                state.calls[c].at = At::Reset;
            }
            Step::Look(c) => self.look(&mut state, c),
            Step::SetLatch(c) => self.set_latch(&mut state, c),
            Step::LookAtPost(c) => self.look_at_post(&mut state, c),
            Step::Start(c) => self.start(&mut state, c),
            Step::Sleep(c) => self.sleep(&mut state, c),
            Step::WakeUp(c) => self.wake_up(&mut state, c),
            Step::LastLook(c) => self.last_look(&mut state, c),
            Step::Leave(c) => self.leave(&mut state, c),
            Step::End(c) => self.end_call(&mut state, c),
            Step::Cancel(c) => self.cancel(&mut state, c),
            Step::Take(p) => self.take(&mut state, p),
            Step::BeginLook(p) => self.begin_look(&mut state, p),
            Step::Work(p) => self.work(&mut state, p),
            Step::Commit(p) => self.commit(&mut state, p),
            Step::Resume(p) => state.processes[p].stage = Stage::Begin,
            Step::BeginToLeave(p) => state.processes[p].stage = Stage::Leaves,
            Step::GiveUp(p) => self.give_up(&mut state, p),
            Step::LookAtLatch(p) => self.look_at_latch(&mut state, p),
            Step::Kill(p) => self.kill(&mut state, p),
            Step::Add(n) => self.add(&mut state, n),
            Step::Pay(n) => self.pay(&mut state, n),
            Step::PassBy => self.pass_by(&mut state),
            Step::Tick => self.tick(&mut state),
        }
        // One process is as good as another.
        state.processes.sort_unstable();
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.late > self.late {
            return Some(LATE);
        }
        if state.processes.iter().filter(|process| process.has_post()).count() > 1 {
            return Some(TWO);
        }
        if state.calls.iter().any(|call| call.looks > 1) {
            return Some(SPINS);
        }
        let starts = state.calls.iter().any(|call| call.starts > 1) || state.starts > self.starts;
        starts.then_some(STARTS)
    }

    fn left_lying(&self, end: &State) -> Option<&'static str> {
        let lost = |n: usize| end.kept & 1 << n != 0 && end.things[n].fate == Fate::Lies;
        (0..end.things.len()).any(lost).then_some(LOST)
    }
}

impl Tender {
    /// The steps that come before time goes on, if machines are fast.
    fn pressing(&self, state: &State) -> Vec<Step> {
        let calls = (0..state.calls.len()).filter_map(|c| self.next_of_call(state, c));
        let processes = (0..state.processes.len()).filter_map(|p| self.next_of_process(state, p));
        let unpaid = (0..state.things.len()).filter(|n| state.things[*n].unpaid).map(Step::Pay);
        calls.chain(processes).chain(unpaid).collect()
    }

    fn tick(&self, state: &mut State) {
        if !self.pressing(state).is_empty() {
            state.slow -= 1;
        } else if self.is_late(state) {
            state.late += 1;
        }
        state.now += 1;
        state.starts = 0;
        for call in &mut state.calls {
            (call.looks, call.starts) = (0, 0);
            // What has passed makes no difference.
            call.not_before = if call.not_before <= state.now { 0 } else { call.not_before };
        }
    }

    /// Whether something is undone that is due, or a task is ready beside a call that could be granted it.
    fn is_late(&self, state: &State) -> bool {
        let waits = |c: &usize| state.calls[*c].is_registered();
        let mut calls = (0..state.calls.len()).filter(waits).peekable();
        let undone = calls.peek().is_some() && self.undone(state).any(|due| due <= state.now);
        let ready = |action| {
            let of =
                |(n, thing): (usize, &Thing)| thing.fate == Fate::Ready && self.thing(n).action() == action;
            state.things.iter().enumerate().any(of)
        };
        undone || calls.any(|c| ready(self.calls[c].0))
    }
}
