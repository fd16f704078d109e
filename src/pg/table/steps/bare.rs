//! The unguarded functions, declared as the server's headers have them.

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
    pub(super) fn index_fetch_heap(scan: pg_sys::IndexScanDesc, slot: *mut pg_sys::TupleTableSlot) -> bool;
}
