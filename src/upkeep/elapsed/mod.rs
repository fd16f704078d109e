//! Leases whose time has come.
//!
//! A task whose deadline has passed goes to the end of its priority *with its token*: a late return still succeeds, unless that
//! token is void by then, as after another grant, or because the task rides on another one with its merge key. If that was its last
//! try, or the last deadline that it may miss, it is aborted instead.
//!
//! Nothing is waited for. A task whose row another transaction has locked just now against its end, and one whose merge key or
//! riders are locked, are looked at again later.

mod end;
mod holders;
mod leases;
mod lock;
mod overdue;

use leases::Elapsed;

use super::step::Step;
use crate::pg::clock::Time;
use crate::store::lease::tidy;

/// Looks after leases that have passed, earliest first from a deadline on, whosever they are: up to `bound` of them, or ten times as
/// many tasks. Those that no task needs any more do not count, nor do those that others have locked: they are passed over.
pub(super) fn step(bound: usize, start: Time, now: Time) -> Step {
    let (mut done, mut more, mut count) = (false, false, 0);
    for window in leases::windows(start, now) {
        more = window.is_cut;
        let (stale, passed): (Vec<_>, Vec<_>) = window.leases.into_iter().partition(Elapsed::is_stale);
        if !stale.is_empty() {
            done |= !tidy::remove(stale.iter().map(Elapsed::row).collect()).is_empty();
        }
        let ended = end::all(passed, bound - count, now);
        done |= ended.any;
        more |= ended.left;
        count += ended.count;
        if count >= bound {
            break;
        }
    }
    // Rows that others have locked in transactions that stay open are there each time.
    Step { done, more: done && more }
}
