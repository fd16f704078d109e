//! Facts about this backend and its transaction.

use std::cell::RefCell;
use std::ffi::CStr;

use pgrx::pg_sys;

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

/// What is refused where nothing may be changed, in the words of the error.
pub(super) const CHANGE: &std::ffi::CStr = c"a call that changes the queue";

/// Ends the call if nothing may be changed: in a transaction that only reads, as each one of a standby does.
pub(crate) fn refuse_if_read_only() {
    // SAFETY: reads a variable; raises an error.
    unsafe {
        if pg_sys::XactReadOnly {
            pg_sys::PreventCommandIfReadOnly(CHANGE.as_ptr());
        }
    }
}

/// Whether nothing may be changed.
pub(crate) fn is_read_only() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::XactReadOnly }
}

/// Gives the transaction its id now. A transaction that takes a position from the sequence must have one first:
/// the low-water mark of claiming relies on every taken position belonging to a transaction that
/// snapshots can see as running.
pub(crate) fn assign_transaction_id() {
    refuse_if_read_only();
    // SAFETY: assigns an id if there is none.
    unsafe {
        pg_sys::GetTopTransactionId();
    }
}

/// Whether this transaction has an id, as each has that has changed something.
pub(crate) fn has_transaction_id() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// Whether the innermost subtransaction, or the transaction if there is none, has an id, as each has that has changed something
/// or a part of which has. Still true where its end is told of ([`transaction`](super::transaction)).
pub(crate) fn has_part_an_id() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetCurrentTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// Whether this server replays what another one has written.
pub(crate) fn in_recovery() -> bool {
    // SAFETY: reads shared memory.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// How many shared pages this backend has looked at so far.
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

/// How many ids [`first_not_own`] looks through at most.
const MOST_OWN: u64 = 10_000;

/// The first id from this one on that is neither the own transaction's nor that of a part of it; or the one behind those that
/// it looks through.
pub(crate) fn first_not_own(from: u64) -> u64 {
    let until = next_transaction_id().min(from + MOST_OWN);
    // SAFETY: compares an id with those of this transaction. The lower half of one with its epoch is the id.
    let is_own = |id: &u64| unsafe {
        pg_sys::TransactionIdIsCurrentTransactionId(pg_sys::TransactionId::from_inner(*id as u32))
    };
    (from..until).find(|id| !is_own(id)).unwrap_or(until.max(from))
}

/// Whether this id, as a row's `xmin` gives it, is that of the caller's transaction or of a part of it.
pub(crate) fn is_own(xid: i64) -> bool {
    // SAFETY: looks through the ids of this backend's transaction.
    u32::try_from(xid).is_ok_and(|xid| unsafe { pg_sys::TransactionIdIsCurrentTransactionId(xid.into()) })
}

/// Whether each statement of this transaction sees what was committed before it.
pub(crate) fn is_read_committed() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// Whether what this transaction reads is kept account of, so that it ends in an order with others.
pub(super) fn is_serializable() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::XactIsoLevel == pg_sys::XACT_SERIALIZABLE as i32 }
}

// SAFETY: declared as in the header; set at server start.
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

/// When the current transaction began, in microseconds: tells it from others of this backend, except such as come in one message
/// of the client.
pub(crate) fn transaction_began() -> i64 {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetCurrentTransactionStartTimestamp() }
}

/// How long the statement of the client may still take by `statement_timeout`; `None`: it sets no limit.
pub(crate) fn statement_time_left() -> Option<std::time::Duration> {
    // SAFETY: reads a variable.
    let most = unsafe { pg_sys::StatementTimeout };
    if most <= 0 {
        return None;
    }
    // SAFETY: reads a variable, and a clock.
    let taken = unsafe { pg_sys::GetCurrentTimestamp() - pg_sys::GetCurrentStatementStartTimestamp() };
    Some(std::time::Duration::from_micros((i64::from(most) * 1000 - taken).max(0) as u64))
}

/// For how many locks of each connection the server's lock table has room.
pub(crate) fn max_locks_per_transaction() -> usize {
    // SAFETY: reads a variable that is set at server start.
    usize::try_from(unsafe { pg_sys::max_locks_per_xact }).unwrap_or(0)
}

/// The transaction id that will be assigned next, if no transaction that has one is under way. If a later call finds
/// the same id to be next, no change has been committed in between, in the whole cluster.
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

/// The name that the client has given this session, as the server shows it.
pub(crate) fn application_name() -> String {
    // SAFETY: a string with a NUL at its end, or NULL where there is no setting.
    unsafe {
        let name = pg_sys::application_name;
        if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
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

/// How many random numbers are asked for at once: asking takes about as long for one as for some dozens.
const RANDOM: usize = 32;

thread_local! {
    /// Those that have not been used yet.
    static RANDOM_LEFT: RefCell<Vec<[u8; 8]>> = const { RefCell::new(Vec::new()) };
}

/// 62 bits from the server's strong generator, never 0.
pub(crate) fn random_62_bits() -> i64 {
    let bytes = RANDOM_LEFT.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
        let mut more = [[0u8; 8]; RANDOM];
        // SAFETY: fills the bytes it is given.
        if !unsafe { pg_sys::pg_strong_random(more.as_mut_ptr().cast(), size_of_val(&more)) } {
            pgrx::error!("no random numbers to be had");
        }
        RANDOM_LEFT.with_borrow_mut(|left| left.extend_from_slice(&more[1..]));
        more[0]
    });
    (i64::from_ne_bytes(bytes) & (i64::MAX >> 1)).max(1)
}
