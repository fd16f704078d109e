//! Up to where there was nothing for a call's actions among the leases that have passed.
//!
//! A call leaves most of those of others as they are, so that the next one would pass all of them again. Where there are many (the workers
//! of an action are gone, with all that they had), a backend remembers for a second where it has come to. What comes up below that
//! meanwhile, with a deadline that had passed before it was committed, is found when the second is over.

use crate::memory::{Belief, Latest, Memory};
use crate::pg::clock::Time;

/// By actions.
static PASSED_BY: Memory<Latest<Vec<i32>, Time>> = Memory::of(Belief::PassedBy);

/// The deadline up to which there was nothing for these actions.
pub(super) fn known(action_nos: &[i32]) -> Option<Time> {
    PASSED_BY.with(|known| known.get(action_nos).copied())
}

/// Remembers it.
pub(super) fn remember(action_nos: &[i32], reached: Time) {
    PASSED_BY.learn(|known| known.note(action_nos.to_vec(), reached));
}
