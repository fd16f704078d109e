//! Counters that this transaction has touched, and the look at them right before it commits (`settle::commit`, which is
//! called by name: it is above).

use super::at_end;
use super::counters::{LOCKING, REMOVED, add};
use crate::number::TaskNo;

pub(crate) use super::counters::{Touch, is_preparing, touched};

/// Looks at the signals of these tasks before the transaction commits. To be called by whoever has touched their
/// counters, and not removed them: for a lock, before others can have met it in vain, or as soon as it is there (see
/// [`locking`] for one that takes its time).
pub(crate) fn look_again(task_nos: &[TaskNo], touch: Touch) {
    if task_nos.is_empty() {
        return;
    }
    at_end::listen();
    add(task_nos, touch);
}

/// Counters are about to be locked, one after the other, and while the next is waited for others meet the first ones in vain. If
/// that comes to no end, by an error or a restart, somebody looks in this transaction's place.
pub(crate) fn locking() {
    at_end::listen();
    LOCKING.set(true);
}

/// These of them are locked.
pub(crate) fn locked(task_nos: &[TaskNo]) {
    look_again(task_nos, Touch::Locked);
    LOCKING.set(false);
}

/// The counter of this task is removed. Once that is committed nobody has to look any more; but it may be undone, and others have
/// left signals for it by then.
pub(crate) fn removed(task_no: TaskNo) {
    at_end::listen();
    REMOVED.with_borrow_mut(|removed| {
        let (_, task_nos) = removed.get_or_insert_with(|| (at_end::ends(), Vec::new()));
        task_nos.push(task_no);
    });
}
