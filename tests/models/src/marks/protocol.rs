//! Which steps there are in a state, what each makes of it, and what must hold.

use std::collections::BTreeMap;

use super::{At, Clause, Fate, Marks, Memory, Other, State, Step, Worker, Writer};
use crate::check::Protocol;

impl Protocol for Marks {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        State {
            last_position: 0,
            ids: Vec::new(),
            entries: Vec::new(),
            writers: self.writers.iter().map(|n| Writer { left: *n, id: None, position: None }).collect(),
            worker: Worker {
                left: self.calls,
                at: At::Outside,
                id: None,
                elsewhere: false,
                memory: Memory::default(),
            },
            other: Other { left: self.granted_to_others, id: None },
            missed: false,
            quiet: false,
            moved_beside_others: false,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (w, writer) in state.writers.iter().enumerate() {
            let free_order = !self.has(Clause::IdBeforePosition);
            if writer.left > 0 && writer.id.is_none() {
                steps.push(Step::AssignId(w));
            }
            if writer.left > 0 && writer.position.is_none() && (writer.id.is_some() || free_order) {
                steps.push(Step::TakePosition(w));
            }
            if writer.id.is_some() {
                steps.push(Step::AbortInsertion(w));
                if writer.position.is_some() {
                    steps.push(Step::CommitInsertion(w));
                }
            }
        }
        let worker = &state.worker;
        match worker.at {
            At::Outside => {
                if worker.left > 0 {
                    steps.push(Step::BeginLook);
                    if !worker.elsewhere {
                        steps.push(Step::LookElsewhere);
                    }
                }
                if let Some(id) = worker.id {
                    // A later round of the same call.
                    if !self.has(Clause::NoIdBeforeTheLanes) && worker.memory.may_look_into_lanes() {
                        steps.push(Step::LookIntoLanes);
                    }
                    steps.extend([Step::Commit, Step::Abort]);
                    if state.entries.iter().any(|e| e.granted == Some(id)) {
                        steps.push(Step::RollBackTo);
                    }
                }
            }
            At::HasSnapshot(_) => steps.push(Step::ReadPosition),
            At::HasRead(..) => steps.push(Step::Advance),
            At::HasLooked(_) => {
                steps.push(Step::Claim);
                if worker.id.is_none() && worker.memory.may_look_into_lanes() {
                    steps.push(Step::LookIntoLanes);
                }
            }
        }
        if state.other.id.is_some() {
            steps.extend([Step::CommitOther, Step::AbortOther]);
        } else if state.other.left > 0 {
            let free = (0..state.entries.len()).filter(|e| state.entries[*e].granted.is_none());
            steps.extend(free.map(Step::GrantToOther));
        }
        if !self.has(Clause::NewPosition) {
            for (e, entry) in state.entries.iter().enumerate() {
                if entry.granted.is_some_and(|id| state.ids[id as usize - 1] == Fate::Committed) {
                    steps.push(Step::ComeBack(e));
                }
            }
        }
        steps
    }

    fn step(&self, state: &State, step: &Step) -> State {
        let mut state = state.clone();
        match *step {
            Step::AssignId(w) => state.writers[w].id = Some(state.assign()),
            Step::TakePosition(w) => {
                state.last_position += 1;
                state.writers[w].position = Some(state.last_position);
            }
            Step::CommitInsertion(w) => self.end_insertion(&mut state, w, Fate::Committed),
            Step::AbortInsertion(w) => self.end_insertion(&mut state, w, Fate::Aborted),
            Step::BeginLook => {
                let own = state.worker.id;
                state.worker.left -= 1;
                state.worker.at = At::HasSnapshot(state.snapshot(own));
            }
            Step::LookElsewhere => {
                let look = state.snapshot(state.worker.id);
                let (last, next) = (state.last_position, state.next_id());
                state.quiet |= self.tells && look.xmin >= next;
                let memory = &mut state.worker.memory;
                if self.has(Clause::SeenByThisCall) {
                    memory.seen = 0;
                }
                let bound = memory.find_bound(self, look, last, next);
                let own = look.own.is_some() && self.has(Clause::NoIdBeforeTheLook);
                memory.decided_to = bound.filter(|_| !own).unwrap_or(0);
                state.worker.elsewhere = true;
                state.worker.left -= 1;
                state.worker.at = At::HasLooked(look);
            }
            Step::ReadPosition => {
                let At::HasSnapshot(look) = state.worker.at else { unreachable!() };
                let early = (!self.has(Clause::PositionBeforeNextId)).then(|| state.next_id());
                // Without the clause the id is read here, and the position when it is used.
                state.worker.at = At::HasRead(look, state.last_position, early);
            }
            Step::Advance => self.advance(&mut state),
            Step::LookIntoLanes => {
                let look = state.snapshot(state.worker.id);
                let memory = &mut state.worker.memory;
                let mut firsts = BTreeMap::new();
                for entry in state.entries.iter().filter(|e| look.shows_ready(e)) {
                    if entry.position >= memory.rest || entry.position >= memory.lane_start(entry.lane()) {
                        let first = firsts.entry(entry.lane()).or_insert(entry.position);
                        *first = entry.position.min(*first);
                    }
                }
                memory.remember_lanes(self, memory.decided_to, firsts);
            }
            Step::Claim => self.claim(&mut state),
            Step::Commit => self.end_call(&mut state, Fate::Committed),
            Step::Abort => self.end_call(&mut state, Fate::Aborted),
            Step::RollBackTo => {
                if let Some(id) = state.worker.id {
                    state.undo(id);
                }
                self.forget_own(&mut state);
            }
            Step::GrantToOther(e) => {
                let id = state.assign();
                state.entries[e].granted = Some(id);
                state.other = Other { left: state.other.left - 1, id: Some(id) };
            }
            Step::CommitOther => {
                let id = state.other.id.take();
                state.end(id, Fate::Committed);
            }
            Step::AbortOther => {
                let id = state.other.id.take();
                state.end(id, Fate::Aborted);
            }
            Step::ComeBack(e) => state.entries[e].granted = None,
        }
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        for entry in state.entries.iter().filter(|e| e.granted.is_none()) {
            let memory = &state.worker.memory;
            if entry.position < memory.start {
                return Some("a task that is ready is before the mark");
            }
            if entry.position < memory.own_start {
                return Some("a task that is ready is before the mark of the own transaction");
            }
            if entry.position < memory.lane_start(entry.lane()) {
                return Some("a task that is ready in a lane is before what is known of that");
            }
        }
        state.missed.then_some("a call has begun behind a task that its own look has shown it")
    }

    fn left_lying(&self, _end: &State) -> Option<&'static str> {
        None
    }
}
