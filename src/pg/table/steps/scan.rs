//! Looking: a snapshot, a table and an index, and the walk through them.

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary as guarded;

use super::bare;
use crate::pg::session;

/// A snapshot of what was committed by now, and of what this transaction has written so far; registered.
///
/// # Safety
/// To be called in a transaction.
pub(in crate::pg::table) unsafe fn snapshot() -> pg_sys::Snapshot {
    let read_committed = session::is_read_committed();
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe {
        guarded(|| {
            bare::CommandCounterIncrement();
            // Under READ COMMITTED this is the latest one, too.
            let latest =
                if read_committed { bare::GetTransactionSnapshot() } else { bare::GetLatestSnapshot() };
            bare::RegisterSnapshot(latest)
        })
    }
}

/// Opens a table, and locks it before that.
///
/// # Safety
/// To be called in a transaction. What is returned is valid until it is closed, or the subtransaction is rolled back.
pub(in crate::pg::table) unsafe fn open(table: pg_sys::Oid, lock: u32) -> pg_sys::Relation {
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe { guarded(|| bare::table_open(table, lock as pg_sys::LOCKMODE)) }
}

/// Opens an index of a table that is open, unless the table is mostly empty and has no pages now: then there is nothing
/// to be found, and this is null.
///
/// **No row is missed.** Whatever a snapshot shows was written before it was taken, on pages that have been there since:
/// a table loses pages only where nothing is on them. A serializable transaction does look: that it has found nothing is
/// noted with what it has looked at.
///
/// # Safety
/// As for [`open`]; `table` is open, and the snapshot that is looked with was taken before.
pub(in crate::pg::table) unsafe fn open_index(
    table: pg_sys::Relation,
    index: pg_sys::Oid,
    mostly_empty: bool,
) -> pg_sys::Relation {
    let ask = mostly_empty && !session::is_serializable();
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe {
        guarded(|| {
            if ask && bare::RelationGetNumberOfBlocksInFork(table, pg_sys::ForkNumber::MAIN_FORKNUM) == 0 {
                return std::ptr::null_mut();
            }
            bare::index_open(index, pg_sys::AccessShareLock as pg_sys::LOCKMODE)
        })
    }
}

/// How many pages a table or an index has.
///
/// # Safety
/// It is open.
pub(in crate::pg::table) unsafe fn pages(relation: pg_sys::Relation) -> u32 {
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe { guarded(|| bare::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM)) }
}

/// Begins a scan, or begins it anew, with these keys. `scan` is null or one of the same index, begun for as many keys.
///
/// # Safety
/// Table and index are open, the snapshot is registered, and the keys are for that index.
pub(in crate::pg::table) unsafe fn start(
    scan: pg_sys::IndexScanDesc,
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    keys: &mut [pg_sys::ScanKeyData],
) -> pg_sys::IndexScanDesc {
    let (first, many) = (keys.as_mut_ptr(), keys.len() as i32);
    // SAFETY: as the caller says; plain as the module wants it. A scan copies the keys.
    unsafe {
        guarded(|| {
            let mut scan = scan;
            if scan.is_null() {
                #[cfg(not(feature = "pg18"))]
                let begun = bare::index_beginscan(table, index, snapshot, many, 0);
                #[cfg(feature = "pg18")]
                let begun = bare::index_beginscan(table, index, snapshot, std::ptr::null_mut(), many, 0);
                scan = begun;
            }
            bare::index_rescan(scan, first, many, std::ptr::null_mut(), 0);
            scan
        })
    }
}

/// Ends a scan that will be begun with another number of keys.
///
/// # Safety
/// It was begun in this subtransaction.
pub(in crate::pg::table) unsafe fn end_scan(scan: pg_sys::IndexScanDesc) {
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe { guarded(|| bare::index_endscan(scan)) }
}

/// The next row, in the slot; whether there is one. A slot is made once there is an entry: a scan that finds nothing needs
/// none.
///
/// # Safety
/// The scan was begun in this subtransaction, with keys, on that table; the slot is null or one of that table's.
pub(in crate::pg::table) unsafe fn next(
    scan: pg_sys::IndexScanDesc,
    table: pg_sys::Relation,
    slot: &mut *mut pg_sys::TupleTableSlot,
) -> bool {
    let slot: *mut *mut pg_sys::TupleTableSlot = slot;
    // SAFETY: as the caller says; plain as the module wants it. As `index_getnext_slot` does it: an entry stands for
    // the versions of a row that hang together, of which an ordinary snapshot shows one at most, and the first one will do
    // where all are shown.
    unsafe {
        guarded(|| {
            loop {
                if bare::index_getnext_tid(scan, pg_sys::ScanDirection::ForwardScanDirection).is_null() {
                    return false;
                }
                if (*slot).is_null() {
                    *slot = bare::table_slot_create(table, std::ptr::null_mut());
                }
                if bare::index_fetch_heap(scan, *slot) {
                    return true;
                }
            }
        })
    }
}

/// Ends a scan, and all that came with it; what is null has not been made.
///
/// The lock on the table stays until the transaction ends. The lock on the index goes: REINDEX has the table locked and
/// waits for the index, so a session that waits for the table must not hold the index.
///
/// # Safety
/// All of it was begun in this subtransaction, and is not used any more.
pub(in crate::pg::table) unsafe fn end(
    scan: pg_sys::IndexScanDesc,
    slots: [*mut pg_sys::TupleTableSlot; 3],
    index: pg_sys::Relation,
    table: pg_sys::Relation,
) {
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe {
        guarded(|| {
            if !scan.is_null() {
                bare::index_endscan(scan);
            }
            for slot in slots {
                if !slot.is_null() {
                    bare::ExecDropSingleTupleTableSlot(slot);
                }
            }
            if !index.is_null() {
                bare::index_close(index, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
            }
            bare::table_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        });
    }
}
