//! Facts about this backend and its transaction.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::PgSqlErrorCode;

/// Makes settings that begin with this and a dot ours alone: one that is not declared is an error from now on.
/// Before PostgreSQL 15 they are taken as they come.
pub(crate) fn reserve_settings(prefix: &'static std::ffi::CStr) {
    #[cfg(feature = "pg14")]
    let _ = prefix;
    // SAFETY: a string with a NUL at its end, of which Postgres makes a copy.
    #[cfg(not(feature = "pg14"))]
    unsafe {
        pg_sys::MarkGUCPrefixReserved(prefix.as_ptr());
    }
}

/// Gives the transaction its id now. Whoever takes a position from the sequence must have one first:
/// the low-water mark of claiming relies on every taken position belonging to a transaction that
/// snapshots can see as running.
pub(crate) fn assign_transaction_id() {
    // SAFETY: assigns an id if there is none; raises an error in read-only transactions.
    unsafe {
        if pg_sys::RecoveryInProgress() || pg_sys::XactReadOnly {
            pg_sys::PreventCommandIfReadOnly(c"a call that changes the queue".as_ptr());
        }
        pg_sys::GetTopTransactionId();
    }
}

/// Whether this transaction has an id: it has changed something, or is about to.
pub(crate) fn has_transaction_id() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// Whether this server replays what another one has written.
pub(crate) fn in_recovery() -> bool {
    // SAFETY: reads shared memory.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// How many pages this backend has looked at so far.
pub(crate) fn pages_read() -> u64 {
    // SAFETY: reads counters of this process.
    let usage = unsafe { pg_sys::pgBufferUsage };
    (usage.shared_blks_hit + usage.shared_blks_read).unsigned_abs()
}

/// The transaction id that will be assigned next, with its epoch: all that are assigned by now are smaller.
pub(crate) fn next_transaction_id() -> u64 {
    // SAFETY: reads shared memory, under the lock that assigning takes.
    unsafe { pg_sys::ReadNextFullTransactionId() }.value
}

/// The id of a transaction that is or was running lately, with its epoch.
pub(crate) fn with_epoch(xid: pg_sys::TransactionId) -> u64 {
    let next = next_transaction_id();
    next - u64::from((next as u32).wrapping_sub(xid.into_inner()))
}

thread_local! {
    /// Inside [`undoable`]: the answer from outside of it. A subtransaction would pass for a transaction block.
    static IN_BLOCK: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Whether this id, as a row's `xmin` gives it, is that of the caller's transaction or of a part of it.
pub(crate) fn is_own(xid: i64) -> bool {
    // SAFETY: looks through the ids of this backend's transaction.
    u32::try_from(xid).is_ok_and(|xid| unsafe { pg_sys::TransactionIdIsCurrentTransactionId(xid.into()) })
}

/// Whether the caller may hold the transaction open beyond this call: it is in a transaction block, or the call is one
/// of several things that a function, a DO block or a larger statement does ([`called`]).
pub(crate) fn in_transaction_block() -> bool {
    // SAFETY: reads a variable.
    CALLED_WITHIN.get() || IN_BLOCK.get().unwrap_or_else(|| unsafe { pg_sys::IsTransactionBlock() })
}

thread_local! {
    /// Whether the call under way is not a query of the client's own.
    static CALLED_WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Remembers, while it lives, who calls.
pub(crate) struct Called {
    before: bool,
}

impl Drop for Called {
    fn drop(&mut self) {
        CALLED_WITHIN.set(self.before);
    }
}

/// To be asked at the beginning of a function that has to know [`in_transaction_block`]. What a client sends by itself
/// is over when its query is, and that is when the call is, if the query does nothing else. What runs within a function, a DO
/// block, an INSERT or a CREATE TABLE AS goes on, it may be for long; so does a query that works on the rows of its call, or
/// one that is not the first that a client has sent in a pipeline.
pub(crate) fn called(info: pg_sys::FunctionCallInfo) -> Called {
    // SAFETY: Postgres passes the call's data, which are whole as long as it lasts. A portal that runs a query has its
    // executor's state as long as it does so. Functions are looked up when the executor starts, in its memory: that
    // of the portal's query, if it is this query that calls.
    let within = unsafe {
        let portal = pg_sys::ActivePortal;
        let query = if portal.is_null() { std::ptr::null_mut() } else { (*portal).queryDesc };
        let state = if query.is_null() { std::ptr::null_mut() } else { (*query).estate };
        state.is_null()
            || (*(*info).flinfo).fn_mcxt != (*state).es_query_cxt
            || pg_sys::MyXactFlags & pg_sys::XACT_FLAGS_PIPELINING as i32 != 0
            || !super::query::ends_with_its_call(query)
    };
    Called { before: CALLED_WITHIN.replace(within) }
}

/// Whether each statement of this transaction sees what was committed before it, and passes over rows that
/// others have changed meanwhile.
pub(crate) fn is_read_committed() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32 }
}

unsafe extern "C" {
    /// access/twophase.h; not among pgrx's bindings.
    static max_prepared_xacts: std::ffi::c_int;
}

/// Whether something may be committed here without a commit callback: by COMMIT PREPARED, or by replay on a
/// standby.
pub(crate) fn has_silent_commits() -> bool {
    // SAFETY: reads a variable that is set at server start, and shared memory.
    unsafe { max_prepared_xacts > 0 || pg_sys::RecoveryInProgress() }
}

/// How many subtransactions one transaction begins here at most: with more than 64 ids of subtransactions a
/// backend's list of them overflows, and every snapshot taken anywhere has to look them up on disk.
const MOST_NESTED: u32 = 32;

/// Whether this transaction has begun few enough subtransactions for one more; counts that one.
///
/// Not below a savepoint of the caller: who waits for a subtransaction that ends well goes on to wait for the whole
/// transaction. If a savepoint above is then rolled back the row is free, but he still waits, first in its queue,
/// and the one who rolled back would meet him there when doing the same again.
pub(crate) fn may_nest() -> bool {
    thread_local! {
        /// When the transaction began, which tells it from others well enough for a count, and the count.
        static NESTED: Cell<(i64, u32)> = const { Cell::new((0, 0)) };
    }
    // SAFETY: reads a variable.
    let (level, began) = (unsafe { pg_sys::GetCurrentTransactionNestLevel() }, transaction_began());
    if level > 1 {
        return false;
    }
    let count = Some(NESTED.get()).filter(|(of, _)| *of == began).map_or(0, |(_, count)| count);
    NESTED.set((began, count + 1));
    count < MOST_NESTED
}

/// When the current transaction began, in microseconds: tells it from others of this backend.
pub(crate) fn transaction_began() -> i64 {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetCurrentTransactionStartTimestamp() }
}

/// What [`undo`] unwinds with.
struct Undo;

thread_local! {
    /// A subtransaction is being rolled back for an error that goes on afterwards.
    static ERROR_UNDER_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Rolls back the innermost [`undoable`] work.
pub(crate) fn undo() -> ! {
    // Not a panic: no hook runs, and nothing is written anywhere.
    resume_unwind(Box::new(Undo))
}

/// Runs `work` in a subtransaction. `None` if it called [`undo`]: what it did is undone then, and its locks are
/// given up. What it did is undone as well if it refuses.
pub(crate) fn undoable<T, E>(work: impl FnOnce() -> Result<T, E>) -> Option<Result<T, E>> {
    // SAFETY: the subtransaction is ended on every way out; memory context and resource owner are put back as
    // they were, as PL/pgSQL does. An error of Postgres arrives here as a panic, and goes on as one once the
    // subtransaction is rolled back: left open it would take the transaction for a savepoint that the client has to roll
    // back. It stays on Postgres' stack of errors meanwhile, from which it is raised again further out.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let owner = pg_sys::CurrentResourceOwner;
        let in_block = in_transaction_block();
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let outside = IN_BLOCK.replace(Some(in_block));
        let result = catch_unwind(AssertUnwindSafe(work));
        IN_BLOCK.set(outside);
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

/// Runs `work` in a subtransaction: what it changed is undone if it refuses.
pub(crate) fn all_or_nothing<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    match undoable(work) {
        Some(result) => result,
        // It was for a call further out.
        None => undo(),
    }
}

/// Reads something, and gives up at once the locks on tables that reading takes. A transaction keeps them to its end
/// otherwise, and whoever wants a table for himself waits for it; so does everybody who comes after him.
pub(crate) fn keeping_no_locks<T>(read: impl FnOnce() -> T) -> T {
    match all_or_nothing(|| Err::<std::convert::Infallible, T>(read())) {
        Err(result) => result,
        Ok(never) => match never {},
    }
}

/// For how many locks of each connection the server's lock table has room.
pub(crate) fn max_locks_per_transaction() -> usize {
    // SAFETY: reads a variable that is set at server start.
    usize::try_from(unsafe { pg_sys::max_locks_per_xact }).unwrap_or(0)
}

/// The transaction id that will be assigned next, if no transaction that has one is under way: whoever finds the same
/// one to be next later on knows that nothing has been changed meanwhile, in the whole cluster.
///
/// To be called before a statement: the snapshot that is taken here holds vacuum back until the next one goes.
pub(crate) fn next_transaction_id_if_quiet() -> Option<u64> {
    // SAFETY: reads shared memory. A standby learns of transactions as it replays them.
    if unsafe { pg_sys::RecoveryInProgress() } {
        return None;
    }
    let next = next_transaction_id();
    // SAFETY: a snapshot that is only looked at, before any other is taken.
    let xmin = unsafe { (*pg_sys::GetLatestSnapshot()).xmin };
    // An id that was assigned since then is not smaller; the same is asked again after the sleep.
    (xmin.into_inner() == next as u32).then_some(next)
}

/// Ends the call if the user, a time-out or a shutdown asks for it.
pub(crate) fn check_for_interrupts() {
    pgrx::check_for_interrupts!();
}

/// Does nothing for a short while.
pub(crate) fn nap(time: std::time::Duration) {
    // SAFETY: sleeps.
    unsafe { pg_sys::pg_usleep(time.as_micros() as std::ffi::c_long) };
}

/// 62 bits from the operating system's generator, never 0.
pub(crate) fn random_62_bits() -> i64 {
    let mut bytes = [0u8; 8];
    // SAFETY: fills the eight bytes it is given.
    if !unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) } {
        pgrx::error!("no random numbers to be had");
    }
    (i64::from_ne_bytes(bytes) & (i64::MAX >> 1)).max(1)
}

/// Runs `work` in a subtransaction, in which no lock is waited for longer than this; `None` if one was, and what it did is undone
/// then. What it did is undone as well if it refuses.
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
        Err(payload) if is_lock_timeout(payload.as_ref()) => {
            forget_error();
            None
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// To be called by whoever has caught an error of Postgres' and does not pass it on. Postgres keeps what it knows of
/// errors under way on a stack of five, and ends every session when there is no room for one more. If another error is under
/// way, whoever ends that clears the stack.
pub(super) fn forget_error() {
    if !ERROR_UNDER_WAY.get() {
        // SAFETY: the error was caught, and what it said was copied by pgrx. None is under way that is still to be raised
        // again: not one of ours, and Postgres and its languages report or copy theirs before they roll back.
        unsafe { pg_sys::FlushErrorState() }
    }
}

/// Whether this is an error of Postgres' about a lock that was not to be had in time.
fn is_lock_timeout(payload: &(dyn std::any::Any + Send)) -> bool {
    let report = match payload.downcast_ref::<CaughtError>() {
        Some(CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) => report,
        _ => return false,
    };
    report.sql_error_code() == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE
}
