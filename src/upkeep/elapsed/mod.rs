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
mod passed_by;
mod walk;

use end::Done;
pub(crate) use walk::{Caller, look_after};

use leases::Elapsed;

use crate::pg::clock::Time;
use crate::store::lease::tidy;

/// What became of the leases that were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    /// The try of a task has ended.
    pub(crate) ended: bool,
    /// Leases are gone that were there.
    pub(crate) removed: bool,
    /// There may be more.
    pub(crate) more: bool,
    /// Tasks of other actions than the call's are overdue, or were set aside until now.
    pub(crate) of_others: bool,
}

impl Looked {
    /// Whether another look is worth it: there may be more, and not all of what was seen now will be seen again. Rows that
    /// others have locked in transactions that stay open are there each time.
    pub(crate) fn goes_on(&self) -> bool {
        self.more && (self.ended || self.removed)
    }

    /// Removes those of the leases that no task needs any more, and leaves the others.
    fn without_stale(&mut self, window: Vec<Elapsed>) -> Vec<Elapsed> {
        let (stale, passed): (Vec<_>, Vec<_>) = window.into_iter().partition(Elapsed::is_stale);
        if !stale.is_empty() {
            self.removed |= !tidy::remove(stale.iter().map(Elapsed::row).collect()).is_empty();
        }
        passed
    }

    /// Notes what was done; how much of the bound that was.
    fn add(&mut self, done: Done) -> usize {
        self.ended |= done.ended;
        self.removed |= done.removed;
        self.more |= done.left;
        done.count
    }
}

/// Looks after leases that have passed, earliest first, whosever they are: up to `bound` of them, or ten times as many tasks.
/// Those that no task needs any more do not count, nor do those that others have locked: they are passed over.
pub(crate) fn look_after_all(bound: usize, now: Time) -> Looked {
    let mut looked = Looked::default();
    let mut count = 0;
    for window in leases::windows(Time::BEGINNING, now, leases::LEASES_OF_A_WALK) {
        looked.more = window.is_cut;
        let passed = looked.without_stale(window.leases);
        count += looked.add(end::all(passed, bound - count, now));
        if count >= bound {
            break;
        }
    }
    looked
}
