//! Hearing of the ends of this backend's transactions.

use std::cell::Cell;

use pgrx::pg_sys;
use pgrx::prelude::*;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Committed, and visible to everybody.
    Commit,
    /// Rolled back: others see what it had locked as free.
    Abort,
    /// Prepared: its fate is decided elsewhere.
    Prepare,
    /// A subtransaction of this nesting level was rolled back.
    AbortSub(i32),
}

/// What hears of the ends. It may not raise an error: by then there is nothing that could be rolled back.
type Listener = fn(End);

thread_local! {
    static LISTENER: Cell<Option<Listener>> = const { Cell::new(None) };
}

/// Has the listener called at the end of this and of every later transaction of this backend. There is one
/// listener; to ask again costs nothing.
pub(crate) fn listen(listener: Listener) {
    if LISTENER.replace(Some(listener)).is_none() {
        // SAFETY: the callbacks are functions of this library, which stays loaded as long as the backend lives.
        unsafe {
            pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
            pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut());
        }
    }
}

fn tell(end: End) {
    if let Some(listener) = LISTENER.get() {
        listener(end);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_transaction(event: pg_sys::XactEvent::Type, _arg: *mut std::ffi::c_void) {
    match event {
        pg_sys::XactEvent::XACT_EVENT_COMMIT => tell(End::Commit),
        pg_sys::XactEvent::XACT_EVENT_ABORT => tell(End::Abort),
        pg_sys::XactEvent::XACT_EVENT_PREPARE => tell(End::Prepare),
        // Parallel workers do not get here: the functions that matter are PARALLEL UNSAFE.
        _ => {}
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    _subid: pg_sys::SubTransactionId,
    _parent_subid: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        // SAFETY: reads a variable. The subtransaction is still the current one while it is told of its end.
        tell(End::AbortSub(unsafe { pg_sys::GetCurrentTransactionNestLevel() }));
    }
}
