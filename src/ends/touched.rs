//! Counters that this transaction has touched, and the look at them right before it commits (`settle::commit`, which is
//! called by name: it is above).

use super::at_end;
use super::counters::{add, add_removed, set_locking};
use crate::number::TaskNo;

pub(crate) use super::counters::{Touch, is_preparing, touched};

/// Has the countdown rows of these tasks looked at before the transaction commits. To be called after their counters were
/// touched and not removed: for a lock, before another transaction can have found the counter locked, or as soon as
/// the lock is there (see [`locking`] for locks that take their time).
pub(crate) fn look_again(task_nos: &[TaskNo], touch: Touch) {
    if task_nos.is_empty() {
        return;
    }
    at_end::listen();
    add(task_nos, touch);
}

/// Counters are about to be locked, one after the other. While the next is waited for, others find the first ones locked, and
/// leave rows for them. If the locking does not come to an end, by an error or a restart, a later call has to count these in this
/// transaction's place.
pub(crate) fn locking() {
    at_end::listen();
    set_locking(true);
}

/// These of them are locked.
pub(crate) fn locked(task_nos: &[TaskNo]) {
    look_again(task_nos, Touch::Locked);
    set_locking(false);
}

/// The counter of this task is removed. Once that is committed its rows need no look any more. But it may be undone, and
/// others may have left rows for it by then.
pub(crate) fn removed(task_no: TaskNo) {
    at_end::listen();
    add_removed(task_no);
}
