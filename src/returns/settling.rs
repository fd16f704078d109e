//! Returns that settle their tasks and bring nothing else along.

use super::{Code, End, Returned, take};
use crate::pg::clock::Time;
use crate::settle::{Ending, settle};
use crate::state::Cause;
use crate::store::live::Live;

/// Settles tasks, each in its own way.
pub(super) fn settle_each(settling: &[Returned<&End>], now: Time) -> Vec<Code> {
    if settling.is_empty() {
        return Vec::new();
    }
    let gone = take(settling);
    let (codes, endings): (Vec<Code>, Vec<Ending>) = settling
        .iter()
        .filter_map(|one| Some(((one.at, one.how.outcome.name()), one.how.of(gone.of(one)?))))
        .unzip();
    settle(endings, now);
    codes
}

impl End {
    /// The end of the task that was in progress like this.
    pub(super) fn of(&self, live: &Live) -> Ending {
        let result = self.result.clone();
        Ending { result, ..Ending::of(live, self.outcome, Cause::Worker, self.status.clone()) }
    }
}
