//! Returns that settle their tasks and bring nothing else along.

use super::end::End;
use super::taken::{Code, Returned, take};
use crate::pg::clock::Time;
use crate::settle::{Ending, settle};

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
