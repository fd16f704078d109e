//! What a look leaves that has granted nothing: what is due, and until when there is nothing more to do.
//!
//! This is one question, and each call that sleeps asks it, with each look, *before* it sleeps: what a call does not know of, and no
//! commit brings, ends no sleep.

use std::time::Duration;

use super::look::{Due, look};
use super::next::next_shared;
use crate::clock;
use crate::pg::clock::Time;
use crate::rights;

/// What a look that has granted nothing leaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Next {
    /// When there will be something for the call to do, if no commit comes before.
    pub(crate) due: Option<Time>,
    /// When there will be something to be done by a process that commits.
    pub(crate) shared: Option<Time>,
    /// Something is due that a process that commits has to do.
    pub(crate) owed: bool,
    /// How long a look is not to be repeated that nothing has called for: it has gone past entries that may not run.
    pub(crate) rest: Duration,
}

impl Next {
    /// After a look that has found this, whatever the call waits for.
    pub(crate) fn after(due: &Due, now: Time) -> Self {
        Next { shared: next_shared(now), owed: due.any() || due.expired, ..Next::default() }
    }
}

/// What is owed, and what comes next, for a call that asks for no tasks: it waits for ends. A part of its look, which has begun with
/// [`tables::hold`](crate::locks::tables::hold).
pub(crate) fn owed() -> Next {
    let mut next = Next::default();
    rights::for_no_caller(|| {
        let now = clock::now();
        next = Next::after(&look(&[], now), now);
    });
    next
}
