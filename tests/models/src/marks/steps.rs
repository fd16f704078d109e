//! What the steps do.

use super::{At, Clause, Entry, Fate, Marks, State};

impl Marks {
    pub(super) fn end_insertion(&self, state: &mut State, w: usize, fate: Fate) {
        let writer = &mut state.writers[w];
        let (id, position) = (writer.id.take(), writer.position.take());
        writer.left -= 1;
        if let (Some(inserted), Some(position), Fate::Committed) = (id, position, fate) {
            state.entries.push(Entry { position, inserted, granted: None });
            state.entries.sort_unstable_by_key(|e| e.position);
        }
        state.end(id, fate);
    }

    /// The transaction of the worker ends.
    pub(super) fn end_call(&self, state: &mut State, fate: Fate) {
        let id = state.worker.id.take();
        state.end(id, fate);
        self.forget_own(state);
    }

    /// `at_end::ended`.
    pub(super) fn forget_own(&self, state: &mut State) {
        if self.has(Clause::OwnUntilUndone) {
            state.worker.memory.own_start = 0;
        }
    }

    /// `marks::advance`.
    pub(super) fn advance(&self, state: &mut State) {
        let At::HasRead(look, read, early) = state.worker.at else { unreachable!() };
        let (last, next) = match early {
            Some(next) => (state.last_position, next),
            None if self.has(Clause::NextIdAfterTheLook) => (read, state.next_id()),
            None => (read, look.xmax),
        };
        state.quiet |= self.tells && look.xmin >= next;
        let memory = &mut state.worker.memory;
        let first = state
            .entries
            .iter()
            .find(|e| e.position >= memory.begins() && look.shows_ready(e))
            .map(|e| e.position);
        memory.seen = first.unwrap_or(last + 1);
        memory.decided_to = 0;
        if let Some(bound) = memory.find_bound(self, look, last, next) {
            let behind = if self.has(Clause::NotBeyondTheBound) { bound + 1 } else { last + 1 };
            let start = memory.begins().max(first.map_or(behind, |first| first.min(behind)));
            if look.own.is_some() && self.has(Clause::NoIdBeforeTheLook) {
                memory.own_start = start;
            } else {
                state.moved_beside_others |= self.tells && start > memory.start && !state.quiet;
                (memory.start, memory.decided_to) = (start, bound);
            }
        }
        state.worker.at = At::HasLooked(look);
    }

    /// The claim of the call, from `marks::ranges_of_look` on.
    pub(super) fn claim(&self, state: &mut State) {
        let At::HasLooked(look) = state.worker.at else { unreachable!() };
        let memory = &mut state.worker.memory;
        let start = memory.begins().max(memory.seen);
        if self.has(Clause::SeenByThisCall) {
            memory.seen = 0;
        }
        state.missed |=
            state.entries.iter().any(|e| e.position < start && e.granted.is_none() && look.shows_ready(e));
        let found = state.entries.iter().position(|e| e.position >= start && e.granted.is_none());
        if let Some(found) = found {
            let id = state.worker.id.unwrap_or_else(|| state.assign());
            state.worker.id = Some(id);
            state.entries[found].granted = Some(id);
        }
        state.worker.at = At::Outside;
    }
}
