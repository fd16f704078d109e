//! What a look leaves that has come to nothing: what is due, and until when there is nothing more to do.

use std::time::Duration;

use super::look::look;
use super::next::next_shared;
use crate::clock;
use crate::locks::tables;
use crate::pg::clock::Time;
use crate::pg::subtransaction;
use crate::rights;

/// What a look that has come to nothing leaves.
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

/// The same for a call that waits for the ends of tasks, whatever the actions are. Holds nothing afterwards.
pub(crate) fn owed() -> Next {
    subtransaction::keeping_no_locks(|| {
        let mut next = Next::default();
        rights::for_no_caller(|| {
            tables::hold();
            let now = clock::now();
            let due = look(&[], now);
            next = Next { shared: next_shared(now), owed: due.any() || due.expired, ..Next::default() };
        });
        next
    })
}
