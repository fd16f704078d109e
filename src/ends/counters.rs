//! What this transaction has done with counters, and what its end makes of that.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::count;
use crate::number::TaskNo;
use crate::pg::last_call;
use crate::pg::transaction::{Before, End};
use crate::wake;

thread_local! {
    /// Tasks whose counters this transaction has locked or would have liked to. A hint: more than
    /// needed costs a look, and a savepoint that rolled back leaves no more than that.
    static TOUCHED: RefCell<BTreeMap<TaskNo, Touch>> = const { RefCell::new(BTreeMap::new()) };
    /// Tasks whose counters this transaction has removed, and the number of [`count::ends`] when it removed the first.
    pub(super) static REMOVED: RefCell<Option<(u64, Vec<TaskNo>)>> = const { RefCell::new(None) };
    /// Counters are being locked, and which ones is not known yet.
    pub(super) static LOCKING: Cell<bool> = const { Cell::new(false) };
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

/// Remembers what was done with the counters of these tasks, the most of it.
pub(super) fn add(task_nos: &[TaskNo], touch: Touch) {
    TOUCHED.with_borrow_mut(|touched| {
        for task_no in task_nos {
            let most = touched.entry(*task_no).or_insert(touch);
            *most = touch.max(*most);
        }
    });
}

/// Counters whose removal a savepoint may have undone were merely locked.
fn bring_back() {
    let undone = REMOVED.with_borrow_mut(|removed| removed.take_if(|(ends, _)| *ends != count::ends()));
    if let Some((_, task_nos)) = undone {
        add(&task_nos, Touch::Locked);
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
