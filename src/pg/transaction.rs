//! Hearing of the ends of this backend's transactions: right before one, at it, and after it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pgrx::pg_sys;
use pgrx::prelude::*;

/// How a transaction is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Commit,
    Prepare,
}

/// How a transaction or a subtransaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Committed, and visible to each snapshot that is taken from now on.
    Commit,
    /// Rolled back: others see the rows that it had locked as free.
    Abort,
    /// Prepared: its fate is decided elsewhere.
    Prepare,
    /// A subtransaction of this nesting level was rolled back.
    AbortSub(i32),
    /// A subtransaction of this nesting level has become a part of the one around it.
    CommitSub(i32),
}

/// What a transaction remembers, by the nesting level of the subtransaction that it came with.
#[derive(Debug)]
pub(crate) struct Levels<T>(BTreeMap<i32, Vec<T>>);

impl<T> Levels<T> {
    /// Nothing is remembered yet.
    pub(crate) const fn new() -> Self {
        Levels(BTreeMap::new())
    }

    /// Remembers something of the subtransaction of this level.
    pub(crate) fn add(&mut self, level: i32, what: T) {
        self.0.entry(level).or_default().push(what);
    }

    /// What came with this subtransaction or those within it: they were rolled back.
    pub(crate) fn undone(&mut self, level: i32) -> impl Iterator<Item = T> + use<T> {
        self.0.split_off(&level).into_values().flatten()
    }

    /// What came with this subtransaction belongs to the one around it from now on.
    pub(crate) fn released(&mut self, level: i32) {
        let inner = self.0.split_off(&level);
        if !inner.is_empty() {
            self.0.entry(level - 1).or_default().extend(inner.into_values().flatten());
        }
    }

    /// All of it; nothing is left.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.undone(i32::MIN)
    }
}

/// What hears of the ends.
#[derive(Clone, Copy)]
pub(crate) struct Listener {
    /// The transaction is about to end well. It is whole as yet: statements may run, and an error rolls it back.
    pub(crate) before: fn(Before),
    /// The (sub)transaction is over, see [`End`]. This and what follows may not raise an error: after a commit there is nothing
    /// that could be rolled back.
    pub(crate) ended: fn(End),
    /// Locks may just have been released: after a commit or a rollback that [`Listener::ended`] was called for, its own. Called
    /// often, so a listener that has nothing to do should return fast.
    ///
    /// Postgres calls [`Listener::ended`] first, and releases the locks of its lock manager after that. (Locks on rows
    /// are not among these; they go with the transaction's id.) A backend that was woken in between might still find
    /// the locks held, and would not be woken again.
    pub(crate) unlocked: fn(),
}

impl Listener {
    /// Does nothing at any of these.
    pub(crate) const DEAF: Listener = Listener { before: |_| {}, ended: |_| {}, unlocked: || {} };
}

/// How many listeners there are at most.
const MOST_LISTENERS: usize = 3;

thread_local! {
    /// Those of this backend. They are copied before they are called: one of them may add another meanwhile.
    static LISTENERS: Cell<[Option<&'static Listener>; MOST_LISTENERS]> = const { Cell::new([None; MOST_LISTENERS]) };
}

/// Has the listener called at the end of this and of every later transaction of this backend; what there is to do, if
/// anything, is for it to know. To ask again costs next to nothing.
pub(crate) fn listen(listener: &'static Listener) {
    let mut listeners = LISTENERS.get();
    if listeners.iter().flatten().any(|known| std::ptr::eq(*known, listener)) {
        return;
    }
    let is_first = listeners[0].is_none();
    let Some(free) = listeners.iter_mut().find(|place| place.is_none()) else {
        pgrx::error!("more than {MOST_LISTENERS} listeners");
    };
    *free = Some(listener);
    LISTENERS.set(listeners);
    if is_first {
        // SAFETY: the callbacks are functions of this library, which stays loaded as long as the backend lives, and take
        // no argument. Each is registered once in a backend, and none is ever taken away. An error in Rust becomes one of
        // Postgres before it gets to a frame of C: `pg_guard`.
        unsafe {
            pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
            pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut());
            pg_sys::RegisterResourceReleaseCallback(Some(on_release), std::ptr::null_mut());
        }
    }
}

fn tell(end: End) {
    for listener in LISTENERS.get().into_iter().flatten() {
        without_errors(|| (listener.ended)(end));
    }
}

fn tell_before(end: Before) {
    for listener in LISTENERS.get().into_iter().flatten() {
        (listener.before)(end);
    }
}

/// An error here may be one after a commit, for which Postgres has no answer but to end every session. None is known.
/// If there is one after all, other backends may be woken late, and a warning says so.
fn without_errors(tell: impl FnOnce()) {
    // SAFETY: reads a variable. An error sets it to zero on its way, and the server's code that called us counts it
    // down afterwards.
    let holdoff = unsafe { pg_sys::InterruptHoldoffCount };
    // SAFETY: reads a variable.
    let context = unsafe { pg_sys::CurrentMemoryContext };
    if catch_unwind(AssertUnwindSafe(tell)).is_err() {
        // SAFETY: what an error of Postgres leaves to the abort that follows it elsewhere: the count is as it was, the
        // context is the one in which we were called, and no lock of the lightweight kind is held while a transaction is
        // told of its end, nor between the phases in which its owner releases what it has.
        unsafe {
            pg_sys::InterruptHoldoffCount = holdoff;
            pg_sys::MemoryContextSwitchTo(context);
            pg_sys::LWLockReleaseAll();
        }
        super::subtransaction::forget_error();
        pgrx::warning!("taskq could not tell others of the end of this transaction");
    }
}

/// The order is that of xact.c, for whole transactions and subtransactions alike: the event, then one phase after the
/// other over the owner of the (sub)transaction and those within it. So the first call for the last phase after a commit or
/// a rollback comes when all locks of that are released.
#[pg_guard]
extern "C-unwind" fn on_release(
    phase: pg_sys::ResourceReleasePhase::Type,
    _is_commit: bool,
    _is_top_level: bool,
    _arg: *mut std::ffi::c_void,
) {
    if phase == pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_AFTER_LOCKS {
        for listener in LISTENERS.get().into_iter().flatten() {
            without_errors(listener.unlocked);
        }
    }
}

#[pg_guard]
extern "C-unwind" fn on_transaction(event: pg_sys::XactEvent::Type, _arg: *mut std::ffi::c_void) {
    match event {
        pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT => tell_before(Before::Commit),
        pg_sys::XactEvent::XACT_EVENT_PRE_PREPARE => tell_before(Before::Prepare),
        pg_sys::XactEvent::XACT_EVENT_COMMIT => tell(End::Commit),
        pg_sys::XactEvent::XACT_EVENT_ABORT => tell(End::Abort),
        pg_sys::XactEvent::XACT_EVENT_PREPARE => tell(End::Prepare),
        // Parallel workers do not get here: the functions that matter are PARALLEL UNSAFE.
        _ => {}
    }
}

#[pg_guard]
extern "C-unwind" fn on_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    _subid: pg_sys::SubTransactionId,
    _parent_subid: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    // SAFETY: reads a variable. The subtransaction is still the current one while it is told of its end.
    let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() };
    match event {
        pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB => tell(End::AbortSub(level)),
        pg_sys::SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => tell(End::CommitSub(level)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::Levels;

    #[test]
    fn what_a_subtransaction_brought_shares_its_fate() {
        let mut levels = Levels::new();
        for (level, what) in [(1, "top"), (2, "savepoint"), (3, "within it")] {
            levels.add(level, what);
        }
        levels.released(3);
        assert_eq!(levels.undone(3).collect::<Vec<_>>(), Vec::<&str>::new());
        levels.add(3, "another");
        assert_eq!(levels.undone(3).collect::<Vec<_>>(), ["another"]);
        levels.released(2);
        assert_eq!(levels.undone(2).count(), 0);
        assert_eq!(levels.take().collect::<Vec<_>>(), ["top", "savepoint", "within it"]);
        assert_eq!(levels.take().count(), 0);
    }
}
