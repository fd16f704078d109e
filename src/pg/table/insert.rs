//! Inserting rows, and the index entries of rows.

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

use super::change::{clear, fill, refuse_if_read_only, virtual_slot};
use super::columns::Set;
use super::{Level, Table, open, routine};
use crate::pg::descriptor::attribute;

/// A table that rows are being inserted into.
pub(crate) struct Insertion {
    relation: pg_sys::Relation,
    slot: *mut pg_sys::TupleTableSlot,
    indexes: Indexes,
    level: Level,
}

/// Inserts rows into a table.
pub(crate) fn insert<R>(table: &'static Table, work: impl FnOnce(&mut Insertion) -> R) -> R {
    refuse_if_read_only(c"INSERT");
    let level = Level::here();
    // SAFETY: all is opened and closed here, and goes with the (sub)transaction if `work` ends in an error; it has it by
    // reference and can keep nothing.
    unsafe {
        let relation = open(table, pg_sys::RowExclusiveLock);
        let slot = virtual_slot((*relation).rd_att);
        let mut insertion = Insertion { relation, slot, indexes: Indexes::open(relation), level };
        let result = work(&mut insertion);
        level.check();
        insertion.indexes.close();
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        result
    }
}

impl Insertion {
    /// Inserts a row. Columns that are not given are NULL. What the values are made of is gone afterwards.
    pub(crate) fn row<const N: usize>(&mut self, values: impl FnOnce() -> [Set; N]) {
        self.level.check();
        // SAFETY: the slot is one of the table's shape, with room for all columns. The values live in the memory for one
        // row, which is reset once it is written. If making them ends in an error, whoever catches that puts the memory
        // context back.
        unsafe {
            let before = pg_sys::MemoryContextSwitchTo(self.indexes.memory_of_row());
            let values = values();
            pg_sys::MemoryContextSwitchTo(before);
            clear(self.slot);
            let descriptor = (*self.slot).tts_tupleDescriptor;
            for at in 0..(*descriptor).natts as usize {
                *(*self.slot).tts_isnull.add(at) = true;
            }
            fill(self.slot, &values);
            for at in 0..(*descriptor).natts as usize {
                let given = !*(*self.slot).tts_isnull.add(at);
                assert!(given || !attribute(descriptor, at).attnotnull, "column {} may not be NULL", at + 1);
            }
            pg_sys::ExecStoreVirtualTuple(self.slot);
            let Some(insert) = routine(self.relation).tuple_insert else { pgrx::error!("no insertions") };
            let command = pg_sys::GetCurrentCommandId(true);
            let (relation, slot) = (self.relation, self.slot);
            pg_guard_ffi_boundary(|| insert(relation, slot, command, 0, std::ptr::null_mut()));
            self.indexes.add(slot, false, false);
            clear(slot);
            pg_sys::MemoryContextReset(self.indexes.memory_of_row());
        }
    }
}

/// The indexes of a table, open for entries.
struct Indexes {
    result: *mut pg_sys::ResultRelInfo,
    state: *mut pg_sys::EState,
}

impl Indexes {
    /// # Safety
    /// `relation` is open, and stays so until this is closed.
    unsafe fn open(relation: pg_sys::Relation) -> Self {
        // SAFETY: as Postgres does where it applies the changes of a subscription: an executor state without a plan.
        unsafe {
            let state = pg_sys::CreateExecutorState();
            let result =
                pg_sys::palloc0(std::mem::size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
            // In no range table: which columns an update has changed is only a hint, and is not asked then.
            pg_sys::InitResultRelInfo(result, relation, 0, std::ptr::null_mut(), 0);
            pg_sys::ExecOpenIndices(result, false);
            Indexes { result, state }
        }
    }

    /// # Safety
    /// `slot` has a row of the table, which has been written.
    unsafe fn add(&self, slot: *mut pg_sys::TupleTableSlot, update: bool, only_summarizing: bool) {
        #[cfg(any(feature = "pg14", feature = "pg15"))]
        let _ = only_summarizing;
        // SAFETY: as the caller says. No constraint is deferred, so the list that is returned is empty.
        unsafe {
            let none = std::ptr::null_mut();
            pg_sys::ExecInsertIndexTuples(
                self.result,
                slot,
                self.state,
                update,
                false,
                none,
                std::ptr::null_mut(),
                #[cfg(not(any(feature = "pg14", feature = "pg15")))]
                only_summarizing,
            );
        }
    }

    /// Memory for one row at a time: what the conditions of partial indexes allocate is in it, too.
    fn memory_of_row(&self) -> pg_sys::MemoryContext {
        // SAFETY: the executor state is there, and has an expression context once it was asked for one.
        unsafe {
            if (*self.state).es_per_tuple_exprcontext.is_null() {
                pg_sys::MakePerTupleExprContext(self.state);
            }
            (*(*self.state).es_per_tuple_exprcontext).ecxt_per_tuple_memory
        }
    }

    /// # Safety
    /// To be called where it was opened.
    unsafe fn close(self) {
        // SAFETY: both were made by [`Indexes::open`].
        unsafe {
            pg_sys::ExecCloseIndices(self.result);
            pg_sys::FreeExecutorState(self.state);
            pg_sys::pfree(self.result.cast());
        }
    }
}

/// Which index entries a new version of a row needs: the type is another one since PostgreSQL 16.
#[cfg(any(feature = "pg14", feature = "pg15"))]
pub(super) type Needed = bool;
#[cfg(not(any(feature = "pg14", feature = "pg15")))]
pub(super) type Needed = pg_sys::TU_UpdateIndexes::Type;

/// Adds the index entries of a new version of a row, if it needs any: a heap-only one does not.
///
/// # Safety
/// `relation` is open, and `slot` has the version, which has been written.
pub(super) unsafe fn add_index_entries(
    relation: pg_sys::Relation,
    slot: *mut pg_sys::TupleTableSlot,
    needed: Needed,
) {
    #[cfg(any(feature = "pg14", feature = "pg15"))]
    let (some, only_summarizing) = (needed, false);
    #[cfg(not(any(feature = "pg14", feature = "pg15")))]
    let (some, only_summarizing) =
        (needed != pg_sys::TU_UpdateIndexes::TU_None, needed == pg_sys::TU_UpdateIndexes::TU_Summarizing);
    if some {
        // SAFETY: as the caller says.
        unsafe {
            let indexes = Indexes::open(relation);
            indexes.add(slot, true, only_summarizing);
            indexes.close();
        }
    }
}
