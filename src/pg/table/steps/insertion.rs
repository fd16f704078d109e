//! Writing: the indexes of a table, open for entries, and the entries of rows.

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary as guarded;

use super::bare;

/// The indexes that a table has, whether they are ready for entries or not, except such as are being dropped.
///
/// # Safety
/// It is open.
pub(in crate::pg::table) unsafe fn indexes(relation: pg_sys::Relation) -> *mut pg_sys::List {
    // SAFETY: as the caller says; plain as the module wants it.
    unsafe { guarded(|| bare::RelationGetIndexList(relation)) }
}

/// Opens the indexes `open` of a table for entries. Returns them, the executor state in which entries are made, and memory in that state
/// for the values of some rows. There is room to open the others of the list `all` later; the list is freed. `speculative`: a row may be
/// inserted on trial, and taken back if another one has its key.
///
/// # Safety
/// The table is open, and stays so until [`end_insertion`]. The list has its indexes.
pub(in crate::pg::table) unsafe fn open_indexes(
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
pub(in crate::pg::table) unsafe fn open_more_indexes(
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
/// hand for the processor.
///
/// # Safety
/// The indexes were opened by [`open_indexes`], in this subtransaction; the slots have rows of the table.
pub(in crate::pg::table) unsafe fn add_entries(
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
pub(in crate::pg::table) unsafe fn forget_row(state: *mut pg_sys::EState) {
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
pub(in crate::pg::table) unsafe fn clear(slots: &[*mut pg_sys::TupleTableSlot]) {
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
/// All of it was begun in this subtransaction, and is not used any more.
pub(in crate::pg::table) unsafe fn end_insertion(
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
