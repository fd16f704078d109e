//! Functions of the server's that raise nothing, called as they are.
//!
//! pgrx calls functions of the server behind a guard, which turns an error into a panic. Setting it up takes longer than these
//! functions do, and a call that claims or returns a task calls them many times.

use pgrx::pg_sys;

/// The unguarded ones, declared as the server's headers have them.
mod bare {
    use pgrx::pg_sys;

    // SAFETY: declared as in the headers. As they are called here none of them raises an error, which would jump past frames of
    // Rust.
    unsafe extern "C" {
        /// access/xact.h: returns a variable of the current (sub)transaction's.
        pub(super) fn GetCurrentSubTransactionId() -> pg_sys::SubTransactionId;
        /// access/tableam.h: returns the address of a constant.
        pub(super) fn GetHeapamTableAmRoutine() -> *const pg_sys::TableAmRoutine;
        /// utils/timestamp.h: reads the clock.
        pub(super) fn GetCurrentTimestamp() -> pg_sys::TimestampTz;
        /// access/skey.h: fills a struct; looks a function of the server's own up in a table that it is compiled with.
        pub(super) fn ScanKeyInit(
            entry: pg_sys::ScanKey,
            attribute: pg_sys::AttrNumber,
            strategy: pg_sys::StrategyNumber,
            procedure: pg_sys::RegProcedure,
            argument: pg_sys::Datum,
        );
    }
}

/// The (sub)transaction that is under way.
pub(super) fn subtransaction() -> pg_sys::SubTransactionId {
    // SAFETY: reads a variable.
    unsafe { bare::GetCurrentSubTransactionId() }
}

/// The access method of heaps.
pub(super) fn heap_routine() -> *const pg_sys::TableAmRoutine {
    // SAFETY: returns a constant.
    unsafe { bare::GetHeapamTableAmRoutine() }
}

/// What time it is, in microseconds since 2000-01-01 UTC.
pub(super) fn now() -> pg_sys::TimestampTz {
    // SAFETY: reads the clock.
    unsafe { bare::GetCurrentTimestamp() }
}

/// A condition on a column of an index.
///
/// # Safety
/// `function` is the OID of one of the server's own functions (`F_…`): any other would be looked up in the catalog, and
/// that can raise. The value is one that this function takes.
pub(super) unsafe fn scan_key(
    column: i16,
    strategy: pg_sys::StrategyNumber,
    function: u32,
    value: pg_sys::Datum,
) -> pg_sys::ScanKeyData {
    let mut key = pg_sys::ScanKeyData::default();
    // SAFETY: fills the struct; the rest as the caller says.
    unsafe { bare::ScanKeyInit(&mut key, column, strategy, function.into(), value) };
    key
}
