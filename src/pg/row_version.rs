//! What has become of a version of a row, and whether a transaction waits for it.

use pgrx::pg_sys;

/// What has become of a version of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No transaction that is open or committed has changed or deleted it. (One that has only locked the row may be
    /// about to.)
    Untouched,
    /// Another transaction that is still open has.
    Touched,
    /// It was never there, or was rolled back; or this transaction or a committed one has changed or deleted it.
    Gone,
}

/// What has become by now of this version of a row of a table, whatever the snapshot in use shows. Takes no lock on the row, and
/// waits for no transaction.
///
/// # Safety
/// The table is open, is a heap, and has the block.
pub(super) unsafe fn fate(relation: pg_sys::Relation, row: pg_sys::ItemPointerData) -> Fate {
    // SAFETY: as the caller says. A block that the table does not have raises an error, and a line that its block does
    // not have finds nothing. The buffer that a found version is in is pinned by `heap_fetch` and released here; nothing
    // of it is looked at. A dirty snapshot is a structure that needs no more than its type; the visibility check tells in
    // it who is changing what it returns.
    unsafe {
        let mut dirty = pg_sys::SnapshotData {
            snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
            ..Default::default()
        };
        let mut tuple = pg_sys::HeapTupleData { t_self: row, ..Default::default() };
        let mut buffer = pg_sys::InvalidBuffer as pg_sys::Buffer;
        #[cfg(feature = "pg14")]
        let found = pg_sys::heap_fetch(relation, &mut dirty, &mut tuple, &mut buffer);
        #[cfg(not(feature = "pg14"))]
        let found = pg_sys::heap_fetch(relation, &mut dirty, &mut tuple, &mut buffer, false);
        if found {
            pg_sys::ReleaseBuffer(buffer);
        }
        match (found, dirty.xmax) {
            (false, _) => Fate::Gone,
            (true, pg_sys::InvalidTransactionId) => Fate::Untouched,
            (true, _) => Fate::Touched,
        }
    }
}

/// Whether the first transaction that waits for the holders of this version of a row would delete it, change a key of it or
/// lock it FOR UPDATE. Asks the lock manager only: that transaction has a lock on the row there, so that others queue behind it.
pub(crate) fn is_awaited(table: pg_sys::Oid, row: pg_sys::ItemPointerData) -> bool {
    // SAFETY: reads a variable. `GetLockConflicts` fills an array that it allocates, of which nothing is read here. Any
    // tag may be asked for. It raises an error only without memory.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: pg_sys::MyDatabaseId.to_u32(),
            locktag_field2: table.to_u32(),
            locktag_field3: (u32::from(row.ip_blkid.bi_hi) << 16) | u32::from(row.ip_blkid.bi_lo),
            locktag_field4: row.ip_posid,
            locktag_type: pg_sys::LockTagType::LOCKTAG_TUPLE as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        };
        if pg_sys::LockWaiterCount(&tag) == 0 {
            return false;
        }
        let mut count = 0;
        let holders = pg_sys::GetLockConflicts(&tag, pg_sys::AccessShareLock as pg_sys::LOCKMODE, &mut count);
        pg_sys::pfree(holders.cast());
        count > 0
    }
}
