//! What the steps do.

use super::{At, Clause, Next, Pending, Slots, State};

impl Slots {
    pub(super) fn find(&self, state: &mut State, b: usize, refused: At) {
        let found = state.slots.iter().position(|s| match s.by {
            Some((by, pending)) => {
                (by == b && pending == Pending::Made) || !self.has(Clause::LockSlot) && s.task.is_none()
            }
            None => s.task.is_none(),
        });
        state.backends[b].at = match found {
            Some(at) => {
                let slot = &mut state.slots[at];
                let made = slot.by.is_some_and(|(by, pending)| by == b && pending == Pending::Made);
                if !made && self.has(Clause::LockSlot) {
                    slot.by = Some((b, Pending::Locked));
                }
                At::HasSlot(slot.number)
            }
            None => refused,
        };
    }

    pub(super) fn close(&self, state: &mut State, b: usize, commits: bool, next: Next) {
        state.end(b, commits);
        state.backends[b].at = At::Ended(next);
    }
}
