//! The steps of a transaction that deletes what the task waits for.

use super::{At, Clause, Edge, Signal, State, Suspend, Who};

impl Suspend {
    /// Whether the task waits for what this transaction deletes.
    pub(super) fn is_concerned(&self, state: &State, b: Who) -> bool {
        state.edges.iter().any(|e| e.by.is_none() && self.ends[b - 1] & 1 << e.after != 0)
    }

    /// `remove::edges_gone`, as far as it locks the task.
    pub(super) fn lock_task(&self, state: &mut State, b: Who) {
        if !state.backends[b].gone.is_empty() || self.is_concerned(state, b) {
            match (state.counter.as_mut(), state.entry.as_mut()) {
                (Some(counter), _) => {
                    counter.holder = Some(b);
                    state.backends[b].touched = true;
                }
                (None, Some(entry)) => entry.locked = Some(b),
                (None, None) => {}
            }
        }
        state.backends[b].at = if self.has(Clause::TaskBeforeEdges) { At::LockingEdges } else { At::Losing };
    }

    /// `locks::lock_edges_of`, and `dependency::REMOVE_AFTER`.
    pub(super) fn lock_edges(&self, state: &mut State, b: Who) {
        let set = self.ends[b - 1];
        for edge in state.edges.iter_mut().filter(|e| e.by.is_none() && set & 1 << e.after != 0) {
            edge.dropped = Some(b);
            state.backends[b].gone.push(edge.wait_no);
        }
        state.sort();
        state.backends[b].at = if self.has(Clause::TaskBeforeEdges) { At::Losing } else { At::LockingTask };
    }

    /// `fold::of`, where the task is locked.
    pub(super) fn lose(&self, state: &mut State, b: Who) {
        let gone = std::mem::take(&mut state.backends[b].gone);
        if gone.is_empty() || !state.can_lock(b) {
            state.backends[b].at = At::Open;
            return;
        }
        self.try_lock_and_count(state, b);
        if state.backends[b].over.is_some() {
            self.go_on(state, b);
            return;
        }
        state.backends[b].at = At::Recounting;
    }

    /// `Recount::after`, by one snapshot: what is open, and what has ended and is left to be counted.
    pub(super) fn recount(&self, state: &mut State, b: Who) {
        let Some(counter) = state.counter else { unreachable!() };
        let of_wait = |e: &&Edge| e.by.is_none() && e.dropped != Some(b) && e.wait_no == counter.wait_no;
        let edges = state.edges.iter().filter(of_wait);
        let open = edges.filter(|e| !state.awaited[e.after as usize].ended).count() as i8;
        let seen =
            |s: &&Signal| s.wait_no == counter.wait_no && s.by.is_none_or(|by| by == b) && s.taken.is_none();
        let left = state.signals.iter().filter(seen).map(|signal| signal.ends.all() as i8).sum::<i8>();
        let uncounted = open + if self.has(Clause::RecountWithRows) { left } else { 0 };
        let Some(counter) = state.counter.as_mut() else { unreachable!() };
        let mut count = counter.changed.flatten().unwrap_or(counter.now);
        let suspended = counter.suspended && self.has(Clause::SuspendedIsFreed);
        let some_suffice = self.inserted.is_some() && !suspended;
        state.backends[b].at = At::Open;
        if some_suffice {
            count.spare = uncounted - count.remaining;
        } else {
            count.remaining = uncounted;
        }
        if some_suffice && count.spare < 0 {
            counter.changed = Some(None);
            state.backends[b].over = Some(count);
            state.backends[b].at = At::Dropping;
        } else if count.remaining < 1 {
            counter.changed = Some(None);
            state.backends[b].over = Some(count);
            self.release(state, b);
        } else {
            counter.changed = Some(Some(count));
        }
    }
}
