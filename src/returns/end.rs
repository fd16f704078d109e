//! How a task ends that is returned, or a try of it.

use pgrx::datum::Interval;

use super::tries::TryEnd;
use crate::pg::json::JsonText;
use crate::settle::Ending;
use crate::state::{Cause, Outcome};
use crate::store::freed::Freed;
use crate::store::live::Live;

/// The end of a task that is returned.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// Completed or aborted.
    pub(super) outcome: Outcome,
    /// A text for people.
    pub(super) status: Option<String>,
    /// What the task leaves to its dependents.
    pub(super) result: Option<JsonText>,
}

/// What is said of a task that is given back.
#[derive(Clone, Debug)]
pub(crate) struct GivenBack {
    /// A text for people, which is shown until the next one; `None`: the one before stays.
    pub(super) status: Option<String>,
    /// The next try is not before this is over; `None` for the back-off, if the try counts.
    pub(super) retry_after: Option<Interval>,
    /// How the try ends; one that was [`TryEnd::Released`] does not count.
    pub(super) how: TryEnd,
}

impl End {
    /// How long its result is, in bytes.
    pub(super) fn result_length(&self) -> usize {
        self.result.as_ref().map_or(0, |result| result.0.len())
    }

    /// The end of the task that was in progress like this.
    pub(super) fn of(&self, live: &Live) -> Ending {
        let result = self.result.clone();
        Ending { result, ..Ending::of(live, self.outcome, Cause::Worker, self.status.clone()) }
    }
}

impl GivenBack {
    /// Whether the try counts: `max_tries` is asked, and the back-off applies.
    pub(super) fn counts(&self) -> bool {
        self.how != TryEnd::Released
    }

    /// What the task brings along to its next try.
    pub(super) fn freed(&self, live: &Live) -> Freed {
        let freed = live.freed();
        if self.counts() { freed } else { Freed { tries: freed.tries - 1, ..freed } }
    }
}
