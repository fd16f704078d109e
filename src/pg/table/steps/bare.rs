//! The unguarded functions, declared as the server's headers have them.

use pgrx::pg_sys;

// SAFETY: declared as in the headers. What they raise jumps, so they are called behind a guard only.
unsafe extern "C-unwind" {
    // access/xact.h, utils/snapmgr.h
    /// Has what this transaction has written be seen by snapshots that it takes from here on.
    pub(super) fn CommandCounterIncrement();
    /// The snapshot of the transaction's level of isolation: new for each call under READ COMMITTED.
    pub(super) fn GetTransactionSnapshot() -> pg_sys::Snapshot;
    /// A new snapshot, whatever the level of isolation.
    pub(super) fn GetLatestSnapshot() -> pg_sys::Snapshot;
    /// Keeps a snapshot until it is unregistered, or its owner goes. Gives back the one that is kept.
    pub(super) fn RegisterSnapshot(snapshot: pg_sys::Snapshot) -> pg_sys::Snapshot;
    // access/table.h, access/tableam.h, storage/bufmgr.h
    /// Opens a table, and locks it if `lock` is not `NoLock`. Raises an error if there is none.
    pub(super) fn table_open(oid: pg_sys::Oid, lock: pg_sys::LOCKMODE) -> pg_sys::Relation;
    /// Closes a table, and gives back the lock if `lock` is not `NoLock`.
    pub(super) fn table_close(relation: pg_sys::Relation, lock: pg_sys::LOCKMODE);
    /// A slot for rows of the table. `registry`: a list that it is added to; null: none.
    pub(super) fn table_slot_create(
        relation: pg_sys::Relation,
        registry: *mut *mut pg_sys::List,
    ) -> *mut pg_sys::TupleTableSlot;
    /// How many pages a fork of the relation has.
    pub(super) fn RelationGetNumberOfBlocksInFork(
        relation: pg_sys::Relation,
        fork: pg_sys::ForkNumber::Type,
    ) -> pg_sys::BlockNumber;
    // executor/tuptable.h
    /// Lets go of a slot, and of the page that it has pinned.
    pub(super) fn ExecDropSingleTupleTableSlot(slot: *mut pg_sys::TupleTableSlot);
    /// Closes the indexes that were opened into `result`.
    pub(super) fn ExecCloseIndices(result: *mut pg_sys::ResultRelInfo);
    // executor/executor.h, nodes/execnodes.h, utils/palloc.h, utils/memutils.h
    /// Adds the entries of a row to all indexes that are open in `result`. With `no_error` a conflict in one of
    /// the `arbiters` (null: in any) is not raised: `conflict` is set, and the oid of the index returned.
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
    /// Frees all that was allocated in a memory context, and keeps the context.
    pub(super) fn MemoryContextReset(context: pg_sys::MemoryContext);
    /// The state of an execution, with memory of its own below the current context.
    pub(super) fn CreateExecutorState() -> *mut pg_sys::EState;
    /// Frees that state and its memory.
    pub(super) fn FreeExecutorState(state: *mut pg_sys::EState);
    /// Prepares `result` for insertions into the table, with no index open. `index`: in a range table; 0: none.
    pub(super) fn InitResultRelInfo(
        result: *mut pg_sys::ResultRelInfo,
        relation: pg_sys::Relation,
        index: pg_sys::Index,
        partition_root: *mut pg_sys::ResultRelInfo,
        options: std::ffi::c_int,
    );
    // utils/relcache.h, catalog/index.h
    /// The oids of the table's indexes, as a list that the caller frees.
    pub(super) fn RelationGetIndexList(relation: pg_sys::Relation) -> *mut pg_sys::List;
    /// What the executor needs to know of an index to make its entries.
    pub(super) fn BuildIndexInfo(index: pg_sys::Relation) -> *mut pg_sys::IndexInfo;
    /// Adds to that what finding conflicts takes. Of unique indexes only.
    pub(super) fn BuildSpeculativeIndexInfo(index: pg_sys::Relation, about: *mut pg_sys::IndexInfo);
    /// Frees a list, and not what it points to.
    pub(super) fn list_free(list: *mut pg_sys::List);
    /// Memory of the current context, all zero.
    pub(super) fn palloc0(size: pg_sys::Size) -> *mut std::ffi::c_void;
    /// Frees what was allocated in any memory context.
    pub(super) fn pfree(pointer: *mut std::ffi::c_void);
    /// A memory context below `parent`, with the sizes of its blocks in bytes.
    pub(super) fn AllocSetContextCreateInternal(
        parent: pg_sys::MemoryContext,
        name: *const std::ffi::c_char,
        least: pg_sys::Size,
        first: pg_sys::Size,
        most: pg_sys::Size,
    ) -> pg_sys::MemoryContext;
    // access/genam.h
    /// Opens an index, and locks it if `lock` is not `NoLock`. Raises an error if there is none.
    pub(super) fn index_open(oid: pg_sys::Oid, lock: pg_sys::LOCKMODE) -> pg_sys::Relation;
    /// Closes an index, and gives back the lock if `lock` is not `NoLock`.
    pub(super) fn index_close(relation: pg_sys::Relation, lock: pg_sys::LOCKMODE);
    /// Begins a scan by so many keys, which [`index_rescan`] sets. Both relations stay open meanwhile.
    #[cfg(not(feature = "pg18"))]
    pub(super) fn index_beginscan(
        table: pg_sys::Relation,
        index: pg_sys::Relation,
        snapshot: pg_sys::Snapshot,
        keys: std::ffi::c_int,
        orders: std::ffi::c_int,
    ) -> pg_sys::IndexScanDesc;
    /// The same; `instrumentation`: where it counts its searches, null for nowhere.
    #[cfg(feature = "pg18")]
    pub(super) fn index_beginscan(
        table: pg_sys::Relation,
        index: pg_sys::Relation,
        snapshot: pg_sys::Snapshot,
        instrumentation: *mut pg_sys::IndexScanInstrumentation,
        keys: std::ffi::c_int,
        orders: std::ffi::c_int,
    ) -> pg_sys::IndexScanDesc;
    /// Has a scan begin, or begin anew, with these keys, which it copies.
    pub(super) fn index_rescan(
        scan: pg_sys::IndexScanDesc,
        keys: pg_sys::ScanKey,
        many: std::ffi::c_int,
        orders: pg_sys::ScanKey,
        many_orders: std::ffi::c_int,
    );
    /// Ends a scan, and lets go of its pages. The relations stay open.
    pub(super) fn index_endscan(scan: pg_sys::IndexScanDesc);
    /// The place of the next row that the index names; null at the end. Whether the row is visible is not
    /// asked.
    pub(super) fn index_getnext_tid(
        scan: pg_sys::IndexScanDesc,
        direction: pg_sys::ScanDirection::Type,
    ) -> pg_sys::ItemPointer;
    /// Puts the version of the row at that place which the snapshot shows into the slot; false if it shows
    /// none.
    pub(super) fn index_fetch_heap(scan: pg_sys::IndexScanDesc, slot: *mut pg_sys::TupleTableSlot) -> bool;
}
