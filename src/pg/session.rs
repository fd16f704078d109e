//! Facts about this backend and its transaction.

use pgrx::pg_sys;

/// Gives the transaction its id now. Whoever takes a position from the sequence must have one first:
/// the low-water mark of claiming relies on every taken position belonging to a transaction that
/// snapshots can see as running.
pub(crate) fn assign_transaction_id() {
    // SAFETY: assigns an id if there is none; raises an error in read-only transactions.
    unsafe {
        if pg_sys::RecoveryInProgress() || pg_sys::XactReadOnly {
            pg_sys::PreventCommandIfReadOnly(c"taskq".as_ptr());
        }
        pg_sys::GetTopTransactionId();
    }
}

/// Whether the caller holds a transaction open beyond this statement.
pub(crate) fn in_transaction_block() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::IsTransactionBlock() }
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

/// Whether this server allows prepared transactions.
pub(crate) fn has_prepared_transactions() -> bool {
    // SAFETY: reads a variable that is set at server start.
    unsafe { max_prepared_xacts > 0 }
}

/// Runs `work` in a subtransaction: what it changed is undone if it refuses. An error raised in it ends the
/// whole transaction as anywhere else.
pub(crate) fn all_or_nothing<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    // SAFETY: the subtransaction is ended on both ways out; memory context and resource owner are put back
    // as they were, as PL/pgSQL does.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let owner = pg_sys::CurrentResourceOwner;
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let result = work();
        if result.is_ok() {
            pg_sys::ReleaseCurrentSubTransaction();
        } else {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
        result
    }
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

/// Calls a SQL function that takes no arguments and returns void, right before a commit.
pub(crate) fn call_without_arguments(function: pgrx::pg_sys::Oid) {
    if function == pg_sys::InvalidOid {
        return;
    }
    // SAFETY: the transaction is still whole in the pre-commit event, but no portal is open any more, so
    // that a snapshot has to be pushed here. An error aborts the transaction, as it should.
    unsafe {
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        pg_sys::OidFunctionCall0Coll(function, pg_sys::InvalidOid);
        pg_sys::PopActiveSnapshot();
    }
}
