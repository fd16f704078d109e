//! Tasks that are taken from their workers.

use pgrx::datum::Interval;

use super::end::GivenBack;
use super::give_back::end_tries;
use super::tries::TryEnd;
use crate::pg::clock::Time;
use crate::store::live::{self, Live};

/// Ends the tries of tasks in progress, whose rows this transaction has locked for a change: each is ready again at the end
/// of its priority, in the order given, or aborted, if that was its last try. Their tokens are void.
pub(crate) fn revoke(held: &[Live], status: Option<String>, now: Time) {
    if held.is_empty() {
        return;
    }
    live::remove(held);
    let back = GivenBack { status, retry_after: Some(Interval::from_seconds(0.0)), how: TryEnd::Revoked };
    end_tries(&held.iter().map(|live| (live, &back)).collect::<Vec<_>>(), now);
}
