//! Work in a subtransaction, which can be undone.

use std::cell::Cell;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pgrx::pg_sys;
use pgrx::pg_sys::panic::{CaughtError, ErrorReportWithLevel};
use pgrx::prelude::PgSqlErrorCode;

use super::block;
use super::session::{is_read_committed, transaction_began};

/// How many of the subtransactions that a call could do without ([`may_nest`]) one transaction begins at most: with more
/// than 64 ids of subtransactions a backend's list of them overflows, and other sessions have to look them up in `pg_subtrans`.
/// Those that a call cannot do without come on top.
const MOST_NESTED: u32 = 32;

/// Whether this transaction has begun few enough of such subtransactions for one more; counts that one.
///
/// Not below a savepoint of the caller. A transaction that waits for a subtransaction which ends well goes on to
/// wait for the whole transaction above. If a savepoint above is then rolled back, the row is free, but the waiter
/// still waits, first in the queue of the row; the session that rolled back would have to wait for it if it tried
/// the same again.
pub(crate) fn may_nest() -> bool {
    // SAFETY: reads a variable.
    let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() };
    level == 1 && has_room_for_one()
}

/// Whether this transaction has begun few enough of such subtransactions for one more, at whatever level; counts that one.
pub(crate) fn has_room_for_one() -> bool {
    thread_local! {
        /// When the transaction began, which tells it from others well enough for a count, and the count.
        static NESTED: Cell<(i64, u32)> = const { Cell::new((0, 0)) };
    }
    let began = transaction_began();
    let count = Some(NESTED.get()).filter(|(of, _)| *of == began).map_or(0, |(_, count)| count);
    NESTED.set((began, count + 1));
    count < MOST_NESTED
}

/// What [`undo`] unwinds with.
struct Undo;

thread_local! {
    /// A subtransaction is being rolled back for an error that goes on afterwards.
    static ERROR_UNDER_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Rolls back to the innermost [`undoable`], beyond each [`all_or_nothing`] in it.
pub(crate) fn undo() -> ! {
    // Not a panic: no hook runs, and nothing is written anywhere.
    resume_unwind(Box::new(Undo))
}

/// Runs `work` in a subtransaction. `None` if it called [`undo`]: what it did is undone then, and its locks are
/// given up. What it did is undone as well if it refuses or fails.
pub(crate) fn undoable<T, E>(work: impl FnOnce() -> Result<T, E>) -> Option<Result<T, E>> {
    // SAFETY: the subtransaction is ended on every way out; memory context and resource owner are put back as
    // they were, as PL/pgSQL does. An error of Postgres arrives here as a panic, and goes on as one once the
    // subtransaction is rolled back: left open it would take the transaction for a savepoint that the client has to roll
    // back. It stays on Postgres' stack of errors meanwhile, from which it is raised again further out.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let owner = pg_sys::CurrentResourceOwner;
        let in_block = block::in_transaction_block();
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let result = block::answering(in_block, || catch_unwind(AssertUnwindSafe(work)));
        pg_sys::MemoryContextSwitchTo(context);
        if matches!(result, Ok(Ok(_))) {
            pg_sys::ReleaseCurrentSubTransaction();
        } else {
            let failed = result.as_ref().is_err_and(|payload| !payload.is::<Undo>());
            let before = ERROR_UNDER_WAY.replace(failed);
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
            ERROR_UNDER_WAY.set(before);
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
        match result {
            Ok(result) => Some(result),
            Err(payload) if payload.is::<Undo>() => None,
            Err(payload) => resume_unwind(payload),
        }
    }
}

/// What another transaction has, and this one was to wait for, cannot be had: directly or by way of others it waits for this one.
pub(crate) struct Deadlocked;

/// Runs `work`, which undoes itself before an error comes out of it ([`undoable`]), and makes an answer of that of a deadlock.
pub(crate) fn unless_deadlocked<T>(work: impl FnOnce() -> T) -> Result<T, Deadlocked> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Ok(done),
        Err(payload) if is(payload.as_ref(), PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED) => {
            forget_error();
            Err(Deadlocked)
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Runs `work` in a subtransaction: what it changed is undone if it refuses or fails.
pub(crate) fn all_or_nothing<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    match undoable(work) {
        Some(result) => result,
        // It was for a call further out.
        None => undo(),
    }
}

/// Reads something, and gives up at once the locks on tables that reading takes. A transaction keeps them to its end
/// otherwise. A command that needs the table exclusively would wait for it, and so would each session that needs the table
/// after that command.
pub(crate) fn keeping_no_locks<T>(read: impl FnOnce() -> T) -> T {
    match all_or_nothing(|| Err::<Infallible, T>(read())) {
        Err(result) => result,
        Ok(never) => match never {},
    }
}

/// Runs `work` in a subtransaction, in which no lock is waited for longer than this, or than the caller's own
/// `lock_timeout` if that is shorter; `None` if one was, and what it did is undone then. What it did is undone as well
/// if it refuses.
pub(crate) fn within_lock_timeout<T, E>(
    milliseconds: i32,
    work: impl FnOnce() -> Result<T, E>,
) -> Option<Result<T, E>> {
    /// Puts the caller's setting back, whichever way the work ends.
    struct Before(std::ffi::c_int);
    impl Drop for Before {
        fn drop(&mut self) {
            // SAFETY: a variable of this backend, which is read whenever a wait for a lock begins.
            unsafe { pg_sys::LockTimeout = self.0 }
        }
    }
    // SAFETY: as above. It is 0 where the caller waits for ever.
    let _before = unsafe {
        let before = Before(pg_sys::LockTimeout);
        if before.0 == 0 || before.0 > milliseconds {
            pg_sys::LockTimeout = milliseconds;
        }
        before
    };
    match catch_unwind(AssertUnwindSafe(|| all_or_nothing(work))) {
        Ok(result) => Some(result),
        Err(payload) if is(payload.as_ref(), PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE) => {
            forget_error();
            None
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Runs `work` that can be put off. At the higher levels of isolation it may fail with `40001` for rows that others have changed
/// since its statements' snapshots, which is no reason to fail for what the transaction is about: what `work` did is undone then, and
/// nothing else.
pub(crate) fn unless_others_were_faster(work: impl FnOnce()) {
    if is_read_committed() {
        return work();
    }
    let done = catch_unwind(AssertUnwindSafe(|| {
        all_or_nothing(|| {
            work();
            Ok::<(), Infallible>(())
        })
    }));
    match done {
        Ok(Ok(())) => {}
        Err(payload) if is(payload.as_ref(), PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE) => {
            forget_error()
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Runs `work` in a subtransaction. If it fails for what is stored, what it did is undone, and the error returned in words: a row
/// that is there already, or is missing, or has a value that cannot be. Another error goes on.
pub(crate) fn unless_rows_are_wrong<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let done = catch_unwind(AssertUnwindSafe(|| all_or_nothing(|| Ok::<T, Infallible>(work()))));
    match done {
        Ok(Ok(done)) => Ok(done),
        Err(payload) => match report(payload.as_ref()).filter(|report| is_of_rows(report.sql_error_code())) {
            Some(report) => {
                let detail = report.detail().map(|detail| format!(" ({detail})"));
                let words = format!("{}{}", report.message(), detail.unwrap_or_default());
                forget_error();
                Err(words)
            }
            None => resume_unwind(payload),
        },
    }
}

/// Classes 21, 22 and 23 of SQLSTATE, and XX: what the library itself does not find where it has to be has a code of that.
fn is_of_rows(code: PgSqlErrorCode) -> bool {
    use PgSqlErrorCode as Code;
    // The first two of five characters of six bits each.
    let class = |code: Code| code as i32 & 0xfff;
    [
        Code::ERRCODE_CARDINALITY_VIOLATION,
        Code::ERRCODE_DATA_EXCEPTION,
        Code::ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION,
        Code::ERRCODE_INTERNAL_ERROR,
    ]
    .into_iter()
    .any(|of_rows| class(of_rows) == class(code))
}

/// To be called where an error of Postgres' was caught and is not passed on. Postgres keeps what it knows of errors
/// under way on a stack of five, and ends every session when there is no room for one more. If another error is under
/// way, the code that ends that one clears the stack.
pub(super) fn forget_error() {
    if !ERROR_UNDER_WAY.get() {
        // SAFETY: the error was caught, and what it said was copied by pgrx. None is under way that is still to be raised
        // again: not one of ours, and Postgres and its languages report or copy theirs before they roll back.
        unsafe { pg_sys::FlushErrorState() }
    }
}

/// Whether this is an error of Postgres' with that code.
fn is(payload: &(dyn std::any::Any + Send), code: PgSqlErrorCode) -> bool {
    report(payload).is_some_and(|report| report.sql_error_code() == code)
}

/// What an error says that was raised by Postgres, or by the library as one of Postgres'.
fn report(payload: &(dyn std::any::Any + Send)) -> Option<&ErrorReportWithLevel> {
    match payload.downcast_ref::<CaughtError>() {
        Some(CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) => Some(report),
        Some(CaughtError::RustPanic { .. }) => None,
        None => payload.downcast_ref::<ErrorReportWithLevel>(),
    }
}
