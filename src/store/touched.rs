//! Counters that this transaction has touched, and the look at them right before it commits (`settle::commit`, which is
//! called by name: it is above).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::at_end;
use crate::number::TaskNo;
use crate::pg::last_call;
use crate::pg::transaction::{Before, End};
use crate::wake;

thread_local! {
    /// Tasks whose counters this transaction has locked or would have liked to. A hint: more than
    /// needed costs a look, and a savepoint that rolled back leaves no more than that.
    static TOUCHED: RefCell<BTreeMap<TaskNo, Touch>> = const { RefCell::new(BTreeMap::new()) };
    /// Tasks whose counters this transaction has removed, and the number of [`at_end::ends`] when it removed the first.
    static REMOVED: RefCell<Option<(u64, Vec<TaskNo>)>> = const { RefCell::new(None) };
    /// Counters are being locked, and which ones is not known yet.
    static LOCKING: Cell<bool> = const { Cell::new(false) };
    /// The transaction is about to be prepared.
    static PREPARING: Cell<bool> = const { Cell::new(false) };
}

/// What a transaction has done with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touch {
    /// It has left a signal for it.
    LeftSignal,
    /// It has locked it, in whatever strength.
    Locked,
}

/// Has the signals of these tasks checked before the transaction commits. To be called after their counters were
/// touched and not removed: for a lock, before another transaction can have found the counter locked, or as soon as
/// the lock is there (see [`locking`] for locks that take their time).
pub(crate) fn look_again(task_nos: &[TaskNo], touch: Touch) {
    if task_nos.is_empty() {
        return;
    }
    at_end::listen();
    TOUCHED.with_borrow_mut(|touched| {
        for task_no in task_nos {
            let most = touched.entry(*task_no).or_insert(touch);
            *most = touch.max(*most);
        }
    });
}

/// Counters are about to be locked, one after the other. While the next is waited for, others find the first ones locked, and
/// leave signals. If the locking does not come to an end, by an error or a restart, a later call has to count these in this
/// transaction's place.
pub(crate) fn locking() {
    at_end::listen();
    LOCKING.set(true);
}

/// These of them are locked.
pub(crate) fn locked(task_nos: &[TaskNo]) {
    look_again(task_nos, Touch::Locked);
    LOCKING.set(false);
}

/// The counter of this task is removed. Once that is committed its signals need no check any more. But it may be undone, and
/// others have left signals for it by then.
pub(crate) fn removed(task_no: TaskNo) {
    at_end::listen();
    REMOVED.with_borrow_mut(|removed| {
        let (_, task_nos) = removed.get_or_insert_with(|| (at_end::ends(), Vec::new()));
        task_nos.push(task_no);
    });
}

/// Counters whose removal a savepoint may have undone were merely locked.
fn bring_back() {
    let undone = REMOVED.with_borrow_mut(|removed| removed.take_if(|(ends, _)| *ends != at_end::ends()));
    if let Some((_, task_nos)) = undone {
        look_again(&task_nos, Touch::Locked);
    }
}

/// The transaction is about to end well.
pub(super) fn look(end: Before) {
    if has_touched() {
        PREPARING.set(end == Before::Prepare);
        last_call::call(c"_before_commit");
    }
}

/// The transaction has ended: nothing is touched any more.
pub(super) fn forget(end: End) {
    PREPARING.set(false);
    let touched = !TOUCHED.take().is_empty() | REMOVED.take().is_some() | LOCKING.take();
    // Others may have left signals for counters that were locked here, and it to us to count them.
    if end == End::Abort && touched {
        wake::somebody_to_look();
    }
}

/// A savepoint was rolled back; what else the transaction has touched it will look at.
pub(super) fn undone() {
    if LOCKING.take() {
        wake::somebody_to_look();
    }
}

/// What this transaction has touched so far.
pub(crate) fn touched() -> BTreeMap<TaskNo, Touch> {
    bring_back();
    TOUCHED.with_borrow(BTreeMap::clone)
}

/// Whether there is anything to look at.
pub(crate) fn has_touched() -> bool {
    bring_back();
    !TOUCHED.with_borrow(BTreeMap::is_empty)
}

/// Whether the transaction is about to be prepared; asked once.
pub(crate) fn is_preparing() -> bool {
    PREPARING.take()
}
