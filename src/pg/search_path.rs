//! The search path of our statements, whatever the caller has set.
//!
//! Names of the queue's own have their schema in the texts of statements. Operators, and all other names without a schema, are
//! searched for in `pg_catalog`: otherwise a caller could define an operator of its own that would run with the owner's rights.
//! `pg_temp` stands behind it: Postgres looks for tables and types there first if a path does not name it, and for functions and
//! operators never.
//!
//! Postgres pins the path of a function that says `SET search_path`, at each call. For `own_tasks` and `return_task`, which mostly
//! run no statement, that would be a part of their work that one sees. So functions that switch to the owner themselves
//! (`rights::for_caller`) have no such clause. The first statement of a call pins the path for the rest of the call; a statement
//! in a subtransaction of the call pins it for itself, if it is not pinned yet.

use std::cell::Cell;
use std::ffi::{CStr, c_int};

use pgrx::pg_sys;

const PATH: &CStr = c"pg_catalog, pg_temp";

thread_local! {
    /// The call under way; the innermost, if one is made by a statement of another.
    static CALL: Cell<Option<Frame>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Frame {
    /// In which it has begun.
    subtransaction: pg_sys::SubTransactionId,
    /// Of Postgres' stack of settings, since the call has pinned the path.
    level: Option<c_int>,
}

/// A call of a function that leaves the path to its statements; what they have pinned is put back with it.
pub(crate) struct Call {
    around: Option<Frame>,
}

impl Call {
    /// A call begins; the one that it is made by goes on when this is dropped.
    pub(crate) fn begin() -> Self {
        Call { around: CALL.replace(Some(Frame { subtransaction: subtransaction(), level: None })) }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(Frame { level: Some(level), .. }) = CALL.replace(self.around) {
            put_back(level);
        }
    }
}

/// While this is there the path is pinned.
pub(super) struct Pinned {
    /// `None`: for longer.
    level: Option<c_int>,
}

impl Pinned {
    /// Pins the path for the call under way, if that has not been done, and is not the caller's path either. Below a
    /// subtransaction of the call, whose end would put it back, and where no call has begun: only as long as this is there.
    pub(super) fn begin() -> Self {
        if is_pinned() {
            return Pinned { level: None };
        }
        let level = Some(pin());
        match CALL.get() {
            Some(frame) if frame.level.is_none() && frame.subtransaction == subtransaction() => {
                CALL.set(Some(Frame { level, ..frame }));
                Pinned { level: None }
            }
            _ => Pinned { level },
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(level) = self.level {
            put_back(level);
        }
    }
}

fn subtransaction() -> pg_sys::SubTransactionId {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetCurrentSubTransactionId() }
}

fn is_pinned() -> bool {
    // SAFETY: the value of a setting, which is a string once the server has begun, and is not changed meanwhile.
    unsafe { CStr::from_ptr(pg_sys::namespace_search_path) == PATH }
}

/// As Postgres does for a function with a SET clause. Gives back the level of the stack of settings.
fn pin() -> c_int {
    // SAFETY: strings that end with a NUL. If setting it raises an error, the end of the (sub)transaction that it aborts
    // takes the level from the stack.
    unsafe {
        let level = pg_sys::NewGUCNestLevel();
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            PATH.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
        level
    }
}

/// An error leaves that to the end of the (sub)transaction that it aborts, as it does for a function with a SET clause: what
/// has been aborted by now may have taken the level already.
fn put_back(level: c_int) {
    if !std::thread::panicking() {
        // SAFETY: levels end in the order in which they began: a statement's and a call's in the subtransaction in which they
        // began, and those above have ended by then.
        unsafe { pg_sys::AtEOXact_GUC(true, level) }
    }
}
