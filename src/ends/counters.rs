//! What this transaction has done with counters, and what its end makes of that.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::count;
use crate::number::TaskNo;
use crate::pg::last_call;
use crate::pg::transaction::{Before, End};
use crate::wake;

/// What this transaction has done with counters.
struct Counters {
    /// Tasks whose counters it has locked or would have liked to. A hint: more than needed costs a look, and a savepoint that
    /// rolled back leaves no more than that.
    touched: BTreeMap<TaskNo, Touch>,
    /// Tasks whose counters it has removed, and the number of [`count::ends`] when it removed the first.
    removed: Option<(u64, Vec<TaskNo>)>,
    /// Counters are being locked, and which ones is not known yet.
    locking: bool,
    /// It is about to be prepared.
    preparing: bool,
}

const NONE: Counters = Counters { touched: BTreeMap::new(), removed: None, locking: false, preparing: false };

thread_local! {
    static COUNTERS: RefCell<Counters> = const { RefCell::new(NONE) };
}

/// What a transaction has done with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touch {
    /// It has left a row in `countdown` for it.
    LeftRow,
    /// It has locked it, in whatever strength.
    Locked,
}

/// Remembers what was done with the counters of these tasks, the most of it.
pub(super) fn add(task_nos: &[TaskNo], touch: Touch) {
    COUNTERS.with_borrow_mut(|counters| counters.add(task_nos, touch));
}

/// Remembers that the counter of this task was removed.
pub(super) fn add_removed(task_no: TaskNo) {
    COUNTERS.with_borrow_mut(|counters| {
        let (_, task_nos) = counters.removed.get_or_insert_with(|| (count::ends(), Vec::new()));
        task_nos.push(task_no);
    });
}

/// Whether counters are being locked.
pub(super) fn set_locking(locking: bool) {
    COUNTERS.with_borrow_mut(|counters| counters.locking = locking);
}

impl Counters {
    fn add(&mut self, task_nos: &[TaskNo], touch: Touch) {
        for task_no in task_nos {
            let most = self.touched.entry(*task_no).or_insert(touch);
            *most = touch.max(*most);
        }
    }

    /// Counters whose removal a savepoint may have undone were merely locked.
    fn bring_back(&mut self) {
        if let Some((_, task_nos)) = self.removed.take_if(|(ends, _)| *ends != count::ends()) {
            self.add(&task_nos, Touch::Locked);
        }
    }
}

/// The transaction is about to end well.
pub(super) fn look(end: Before) {
    if has_touched() {
        COUNTERS.with_borrow_mut(|counters| counters.preparing = end == Before::Prepare);
        last_call::call(c"_before_commit");
    }
}

/// The transaction has ended: nothing is touched any more.
pub(super) fn forget(end: End) {
    let Counters { touched, removed, locking, .. } = COUNTERS.replace(NONE);
    // Others may have left rows for counters that were locked here, and left it to us to count them.
    if end == End::Abort && (!touched.is_empty() || removed.is_some() || locking) {
        wake::let_one_look();
    }
}

/// A savepoint was rolled back; what else the transaction has touched it will look at.
pub(super) fn undone() {
    if COUNTERS.with_borrow_mut(|counters| std::mem::take(&mut counters.locking)) {
        wake::let_one_look();
    }
}

/// What this transaction has touched so far.
pub(crate) fn touched() -> BTreeMap<TaskNo, Touch> {
    COUNTERS.with_borrow_mut(|counters| {
        counters.bring_back();
        counters.touched.clone()
    })
}

/// Whether there is anything to look at.
pub(crate) fn has_touched() -> bool {
    COUNTERS.with_borrow_mut(|counters| {
        counters.bring_back();
        !counters.touched.is_empty()
    })
}

/// Whether the transaction is about to be prepared; asked once.
pub(crate) fn is_preparing() -> bool {
    COUNTERS.with_borrow_mut(|counters| std::mem::take(&mut counters.preparing))
}
