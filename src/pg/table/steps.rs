//! The steps of a scan, each behind one guard.
//!
//! pgrx calls each function of the server's behind a guard of its own, which turns an error into a panic. A step of a scan
//! is several calls that come one right after the other, with nothing in between that an error would have to clean up; so
//! one guard does for all of them. That was a tenth of what it takes to claim and return a task.
//!
//! **What stands in such a step is plain**: calls of the server's functions, and variables that nothing has to be done
//! for when an error jumps past them. It neither panics nor allocates nor borrows from a cell.

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary as guarded;

use crate::pg::session;

/// The unguarded functions, declared as the server's headers have them.
mod bare {
    use pgrx::pg_sys;

    unsafe extern "C-unwind" {
        // access/xact.h, utils/snapmgr.h
        pub(super) fn CommandCounterIncrement();
        pub(super) fn GetTransactionSnapshot() -> pg_sys::Snapshot;
        pub(super) fn GetLatestSnapshot() -> pg_sys::Snapshot;
        pub(super) fn RegisterSnapshot(snapshot: pg_sys::Snapshot) -> pg_sys::Snapshot;
        // access/table.h, access/tableam.h, storage/bufmgr.h
        pub(super) fn table_open(oid: pg_sys::Oid, lock: pg_sys::LOCKMODE) -> pg_sys::Relation;
        pub(super) fn table_close(relation: pg_sys::Relation, lock: pg_sys::LOCKMODE);
        pub(super) fn table_slot_create(
            relation: pg_sys::Relation,
            registry: *mut *mut pg_sys::List,
        ) -> *mut pg_sys::TupleTableSlot;
        pub(super) fn RelationGetNumberOfBlocksInFork(
            relation: pg_sys::Relation,
            fork: pg_sys::ForkNumber::Type,
        ) -> pg_sys::BlockNumber;
        // executor/tuptable.h
        pub(super) fn ExecDropSingleTupleTableSlot(slot: *mut pg_sys::TupleTableSlot);
        pub(super) fn ExecCloseIndices(result: *mut pg_sys::ResultRelInfo);
        // executor/executor.h, nodes/execnodes.h, utils/palloc.h, utils/memutils.h
        pub(super) fn ExecInsertIndexTuples(
            result: *mut pg_sys::ResultRelInfo,
            slot: *mut pg_sys::TupleTableSlot,
            state: *mut pg_sys::EState,
            update: bool,
            no_error: bool,
            conflict: *mut bool,
            arbiters: *mut pg_sys::List,
            #[cfg(not(any(feature = "pg14", feature = "pg15")))] only_summarizing: bool,
        ) -> *mut pg_sys::List;
        pub(super) fn MemoryContextReset(context: pg_sys::MemoryContext);
        pub(super) fn CreateExecutorState() -> *mut pg_sys::EState;
        pub(super) fn FreeExecutorState(state: *mut pg_sys::EState);
        pub(super) fn InitResultRelInfo(
            result: *mut pg_sys::ResultRelInfo,
            relation: pg_sys::Relation,
            index: pg_sys::Index,
            partition_root: *mut pg_sys::ResultRelInfo,
            options: std::ffi::c_int,
        );
        // utils/relcache.h, catalog/index.h
        pub(super) fn RelationGetIndexList(relation: pg_sys::Relation) -> *mut pg_sys::List;
        pub(super) fn BuildIndexInfo(index: pg_sys::Relation) -> *mut pg_sys::IndexInfo;
        pub(super) fn BuildSpeculativeIndexInfo(index: pg_sys::Relation, about: *mut pg_sys::IndexInfo);
        pub(super) fn list_free(list: *mut pg_sys::List);
        pub(super) fn palloc0(size: pg_sys::Size) -> *mut std::ffi::c_void;
        pub(super) fn pfree(pointer: *mut std::ffi::c_void);
        pub(super) fn AllocSetContextCreateInternal(
            parent: pg_sys::MemoryContext,
            name: *const std::ffi::c_char,
            least: pg_sys::Size,
            first: pg_sys::Size,
            most: pg_sys::Size,
        ) -> pg_sys::MemoryContext;
        // access/genam.h
        pub(super) fn index_open(oid: pg_sys::Oid, lock: pg_sys::LOCKMODE) -> pg_sys::Relation;
        pub(super) fn index_close(relation: pg_sys::Relation, lock: pg_sys::LOCKMODE);
        #[cfg(not(feature = "pg18"))]
        pub(super) fn index_beginscan(
            table: pg_sys::Relation,
            index: pg_sys::Relation,
            snapshot: pg_sys::Snapshot,
            keys: std::ffi::c_int,
            orders: std::ffi::c_int,
        ) -> pg_sys::IndexScanDesc;
        #[cfg(feature = "pg18")]
        pub(super) fn index_beginscan(
            table: pg_sys::Relation,
            index: pg_sys::Relation,
            snapshot: pg_sys::Snapshot,
            instrumentation: *mut pg_sys::IndexScanInstrumentation,
            keys: std::ffi::c_int,
            orders: std::ffi::c_int,
        ) -> pg_sys::IndexScanDesc;
        pub(super) fn index_rescan(
            scan: pg_sys::IndexScanDesc,
            keys: pg_sys::ScanKey,
            many: std::ffi::c_int,
            orders: pg_sys::ScanKey,
            many_orders: std::ffi::c_int,
        );
        pub(super) fn index_endscan(scan: pg_sys::IndexScanDesc);
        pub(super) fn index_getnext_tid(
            scan: pg_sys::IndexScanDesc,
            direction: pg_sys::ScanDirection::Type,
        ) -> pg_sys::ItemPointer;
        pub(super) fn index_fetch_heap(
            scan: pg_sys::IndexScanDesc,
            slot: *mut pg_sys::TupleTableSlot,
        ) -> bool;
    }
}

/// A snapshot of what was committed by now, and of what this transaction has written so far; registered.
///
/// # Safety
/// To be called in a transaction.
pub(super) unsafe fn snapshot() -> pg_sys::Snapshot {
    let read_committed = session::is_read_committed();
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe {
        guarded(|| {
            bare::CommandCounterIncrement();
            // Under READ COMMITTED this is the latest one, too, and taken from where it was left.
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
pub(super) unsafe fn open(table: pg_sys::Oid, lock: u32) -> pg_sys::Relation {
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
pub(super) unsafe fn open_index(
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
pub(super) unsafe fn pages(relation: pg_sys::Relation) -> u32 {
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe { guarded(|| bare::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM)) }
}

/// Begins a scan, or begins it anew, with these keys. `scan` is null or one of the same index, begun for as many keys.
///
/// # Safety
/// Table and index are open, the snapshot is registered, and the keys are for that index.
pub(super) unsafe fn start(
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
pub(super) unsafe fn end_scan(scan: pg_sys::IndexScanDesc) {
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe { guarded(|| bare::index_endscan(scan)) }
}

/// The next row, in the slot; whether there is one. A slot is made once there is an entry: a scan that finds nothing
/// needs none.
///
/// # Safety
/// The scan was begun in this subtransaction, with keys, on that table; the slot is null or one of that table's.
pub(super) unsafe fn next(
    scan: pg_sys::IndexScanDesc,
    table: pg_sys::Relation,
    slot: &mut *mut pg_sys::TupleTableSlot,
) -> bool {
    let slot: *mut *mut pg_sys::TupleTableSlot = slot;
    // SAFETY: as the caller says; plain as the module wants it. As `index_getnext_slot` does it: an entry stands for
    // the versions of a row that hang together, of which an ordinary snapshot shows one at most.
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
/// The lock on the table stays until the transaction ends; that on the index goes, so that who rebuilds it (REINDEX has
/// the table locked by then, and waits for the index) never waits for who waits for the table.
///
/// # Safety
/// All of it was begun in this subtransaction, and is used by nobody any more.
pub(super) unsafe fn end(
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

/// The indexes that a table has, whether they are ready for entries or not.
///
/// # Safety
/// It is open.
pub(super) unsafe fn indexes(relation: pg_sys::Relation) -> *mut pg_sys::List {
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe { guarded(|| bare::RelationGetIndexList(relation)) }
}

/// These indexes of a table, open for entries, with room for all of the list, which is freed; the executor state in which
/// entries are made; and memory in that for the values of some rows. `speculative`: rows may be there on trial.
///
/// # Safety
/// The table is open, and stays so until [`end_insertion`]. The list has its indexes.
pub(super) unsafe fn open_indexes(
    relation: pg_sys::Relation,
    all: *mut pg_sys::List,
    open: &[pg_sys::Oid],
    speculative: bool,
) -> (*mut pg_sys::ResultRelInfo, *mut pg_sys::EState, pg_sys::MemoryContext) {
    // SAFETY: plain as the module wants it. As Postgres does where it applies the changes of a subscription: an executor
    // state without a plan. The table is in no range table: which columns an update has changed is only a hint, and is not
    // asked then. As `ExecOpenIndices` does it, except that not all are opened.
    unsafe {
        guarded(|| {
            let state = bare::CreateExecutorState();
            let result: *mut pg_sys::ResultRelInfo = bare::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast();
            bare::InitResultRelInfo(result, relation, 0, std::ptr::null_mut(), 0);
            let room = if all.is_null() { 0 } else { (*all).length as usize };
            bare::list_free(all);
            // In memory that goes with the executor state.
            let before = pg_sys::MemoryContextSwitchTo((*state).es_query_cxt);
            (*result).ri_IndexRelationDescs = bare::palloc0(room * size_of::<pg_sys::Relation>()).cast();
            (*result).ri_IndexRelationInfo = bare::palloc0(room * size_of::<*mut pg_sys::IndexInfo>()).cast();
            open_some(result, open, speculative);
            pg_sys::MemoryContextSwitchTo(before);
            let memory = bare::AllocSetContextCreateInternal(
                (*state).es_query_cxt,
                c"rows to insert".as_ptr(),
                pg_sys::ALLOCSET_SMALL_MINSIZE as usize,
                pg_sys::ALLOCSET_SMALL_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
            (result, state, memory)
        })
    }
}

/// Opens more of the indexes, in the order given.
///
/// # Safety
/// The first were opened by [`open_indexes`], in this subtransaction; these were not, and are among its list.
pub(super) unsafe fn open_more_indexes(
    result: *mut pg_sys::ResultRelInfo,
    state: *mut pg_sys::EState,
    open: &[pg_sys::Oid],
) {
    // SAFETY: as the caller says; plain as the module wants it. None of these is unique.
    unsafe {
        guarded(|| {
            let before = pg_sys::MemoryContextSwitchTo((*state).es_query_cxt);
            open_some(result, open, false);
            pg_sys::MemoryContextSwitchTo(before);
        });
    }
}

/// # Safety
/// There is room for them. To be called behind a guard.
unsafe fn open_some(result: *mut pg_sys::ResultRelInfo, open: &[pg_sys::Oid], speculative: bool) {
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe {
        for oid in open {
            let index = bare::index_open(*oid, pg_sys::RowExclusiveLock as pg_sys::LOCKMODE);
            let about = bare::BuildIndexInfo(index);
            if speculative && (*about).ii_Unique {
                bare::BuildSpeculativeIndexInfo(index, about);
            }
            let at = (*result).ri_NumIndices as usize;
            *(*result).ri_IndexRelationDescs.add(at) = index;
            *(*result).ri_IndexRelationInfo.add(at) = about;
            (*result).ri_NumIndices += 1;
        }
    }
}

/// Adds the entries of rows that have been written, index by index: while one is written to, what it consists of stays at
/// hand for the processor. That takes a tenth off the time of an insertion.
///
/// # Safety
/// The indexes were opened by [`open_indexes`], in this subtransaction; the slots have rows of the table.
pub(super) unsafe fn add_entries(
    result: *mut pg_sys::ResultRelInfo,
    state: *mut pg_sys::EState,
    slots: &[*mut pg_sys::TupleTableSlot],
) {
    // SAFETY: as the caller says; plain as the module wants it. No constraint is deferred, so the list that is returned is
    // empty. The description of the table is ours alone, and lists its indexes in two arrays; for a while it lists one of
    // them. If an entry ends in an error, it goes with the executor state, and is not used again.
    unsafe {
        guarded(|| {
            let all = *result;
            for at in 0..all.ri_NumIndices as usize {
                (*result).ri_NumIndices = 1;
                (*result).ri_IndexRelationDescs = all.ri_IndexRelationDescs.add(at);
                (*result).ri_IndexRelationInfo = all.ri_IndexRelationInfo.add(at);
                for slot in slots {
                    bare::ExecInsertIndexTuples(
                        result,
                        *slot,
                        state,
                        false,
                        false,
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                        #[cfg(not(any(feature = "pg14", feature = "pg15")))]
                        false,
                    );
                    forget_row(state);
                }
            }
            (*result).ri_NumIndices = all.ri_NumIndices;
            (*result).ri_IndexRelationDescs = all.ri_IndexRelationDescs;
            (*result).ri_IndexRelationInfo = all.ri_IndexRelationInfo;
        });
    }
}

/// What the conditions of partial indexes have allocated for a row goes.
///
/// # Safety
/// To be called behind a guard.
pub(super) unsafe fn forget_row(state: *mut pg_sys::EState) {
    // SAFETY: the executor state has an expression context once it was asked for one.
    unsafe {
        let context = (*state).es_per_tuple_exprcontext;
        if !context.is_null() {
            bare::MemoryContextReset((*context).ecxt_per_tuple_memory);
        }
    }
}

/// Empties slots.
///
/// # Safety
/// They are there.
pub(super) unsafe fn clear(slots: &[*mut pg_sys::TupleTableSlot]) {
    // SAFETY: as the macro of the same purpose does it, for each; plain as the module wants it.
    unsafe {
        guarded(|| {
            for slot in slots {
                if let Some(clear) = (*(**slot).tts_ops).clear {
                    clear(*slot);
                }
            }
        });
    }
}

/// Ends an insertion, or entries into indexes. The lock on the table stays.
///
/// # Safety
/// All of it was begun in this subtransaction, and is used by nobody any more.
pub(super) unsafe fn end_insertion(
    slots: &[*mut pg_sys::TupleTableSlot],
    result: *mut pg_sys::ResultRelInfo,
    state: *mut pg_sys::EState,
    table: pg_sys::Relation,
) {
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe {
        guarded(|| {
            for slot in slots {
                bare::ExecDropSingleTupleTableSlot(*slot);
            }
            bare::ExecCloseIndices(result);
            bare::FreeExecutorState(state);
            bare::pfree(result.cast());
            if !table.is_null() {
                bare::table_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
            }
        });
    }
}
