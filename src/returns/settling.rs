//! Returns that settle their tasks and bring nothing else along.

use super::{Codes, Entry, Return, take};
use crate::pg::clock::Time;
use crate::settle::{Ending, settle};
use crate::state::Cause;
use crate::store::live::Place;
use crate::token::Token;

/// Settles tasks, each in its own way.
pub(super) fn settle_each(settling: &[(usize, Token)], returns: &[Entry], now: Time, codes: &mut Codes) {
    if settling.is_empty() {
        return;
    }
    let gone = take(settling);
    let mut endings = Vec::with_capacity(gone.len());
    for (i, token) in settling {
        let Return::Settle { outcome, status, result, .. } = &returns[*i].2 else { continue };
        if let Some(live) = gone.get(&token.task_no).filter(|l| l.place == Place::Run { nonce: token.nonce })
        {
            codes.insert(*i, outcome.name());
            endings.push(Ending {
                outcome: *outcome,
                result: result.clone(),
                ..Ending::abort(live, Cause::Worker, status.clone())
            });
        }
    }
    settle(endings, now);
}
