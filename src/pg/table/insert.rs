//! Inserting rows, and the index entries of rows.

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

use super::change::{clear, fill, refuse_if_read_only, virtual_slot};
use super::columns::Set;
use super::{Index, Level, Table, open, routine};
use crate::pg::descriptor::attribute;
use crate::pg::session::check_for_interrupts;

/// How many rows are written in one go, and how much memory their values may take by then.
const MOST_WAITING: usize = 500;
const MOST_MEMORY: usize = 256 * 1024;

/// A table that rows are being inserted into.
pub(crate) struct Insertion {
    relation: pg_sys::Relation,
    indexes: Indexes,
    /// The first `waiting` have rows that are still to be written.
    slots: Vec<*mut pg_sys::TupleTableSlot>,
    waiting: usize,
    /// What the values of these rows are made of.
    memory: pg_sys::MemoryContext,
    level: Level,
}

/// Inserts rows into a table. They are there once this has come back.
pub(crate) fn insert<R>(table: &'static Table, work: impl FnOnce(&mut Insertion) -> R) -> R {
    begin(table, None, work)
}

/// The same where another row may have the key of a new one in this unique index: see [`Insertion::row_unless_there`].
pub(crate) fn insert_unless_there<R>(unique: &'static Index, work: impl FnOnce(&mut Insertion) -> R) -> R {
    begin(unique.table, Some(unique), work)
}

fn begin<R>(
    table: &'static Table,
    unique: Option<&'static Index>,
    work: impl FnOnce(&mut Insertion) -> R,
) -> R {
    refuse_if_read_only();
    let level = Level::here();
    // SAFETY: all is opened and closed here, and goes with the (sub)transaction if `work` ends in an error; it has it by
    // reference and can keep nothing.
    unsafe {
        let relation = open(table, pg_sys::RowExclusiveLock);
        let indexes = Indexes::open(relation, unique.map(|index| index.name.oid()));
        let memory = indexes.memory_of_rows();
        let mut insertion = Insertion { relation, indexes, slots: Vec::new(), waiting: 0, memory, level };
        let result = work(&mut insertion);
        insertion.write();
        for slot in insertion.slots {
            pg_sys::ExecDropSingleTupleTableSlot(slot);
        }
        insertion.indexes.close();
        pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        result
    }
}

impl Insertion {
    /// Inserts a row, at the latest when the insertion ends: several are written together. Columns that are not given are
    /// NULL. What the values are made of is gone afterwards.
    pub(crate) fn row<const N: usize>(&mut self, values: impl FnOnce() -> [Set; N]) {
        self.next(values);
        self.waiting += 1;
        self.write_if_full();
    }

    /// Inserts a row unless there is one with its key in the index that was named. Waits for whoever is inserting or
    /// removing such a row. Tells whether it has inserted it.
    ///
    /// As `INSERT … ON CONFLICT DO NOTHING` does it, except that it does not look first: the row is written on trial, and
    /// others who meet it wait for the outcome of the trial, not for this transaction. If its key turns out to be taken the
    /// row is undone before it waits for anybody, so that no two wait for each other's trials.
    pub(crate) fn row_unless_there<const N: usize>(&mut self, values: impl FnOnce() -> [Set; N]) -> bool {
        let slot = self.next(values);
        // SAFETY: the slot is one of the table's shape with a row. The lock of the trial is given back; if an error comes
        // in between, it goes with the (sub)transaction, and the row with it.
        let inserted = unsafe {
            loop {
                if self.tried(slot) {
                    break true;
                }
                if !self.indexes.is_free(slot) {
                    break false;
                }
                check_for_interrupts();
            }
        };
        // SAFETY: as above. Rows that wait to be written need their values still.
        unsafe {
            clear(slot);
            if self.waiting == 0 {
                pg_sys::MemoryContextReset(self.memory);
            }
        }
        self.write_if_full();
        inserted
    }

    /// Writes the rows that wait if there are many, or if what was made for them and since takes much memory.
    fn write_if_full(&mut self) {
        // SAFETY: the memory context is there as long as the insertion is.
        let memory = unsafe { pg_sys::MemoryContextMemAllocated(self.memory, false) };
        if self.waiting == MOST_WAITING || memory as usize >= MOST_MEMORY {
            self.write();
        }
    }

    /// Puts a row into the next slot.
    fn next<const N: usize>(&mut self, values: impl FnOnce() -> [Set; N]) -> *mut pg_sys::TupleTableSlot {
        self.level.check();
        // SAFETY: the slots are of the table's shape, with room for all columns. The values live in the memory of the rows
        // that wait, which is reset once they are written. If making them ends in an error, whoever catches that puts the
        // memory context back.
        unsafe {
            if self.slots.len() == self.waiting {
                self.slots.push(virtual_slot((*self.relation).rd_att));
            }
            let slot = self.slots[self.waiting];
            let before = pg_sys::MemoryContextSwitchTo(self.memory);
            let values = values();
            pg_sys::MemoryContextSwitchTo(before);
            clear(slot);
            let descriptor = (*slot).tts_tupleDescriptor;
            for at in 0..(*descriptor).natts as usize {
                *(*slot).tts_isnull.add(at) = true;
            }
            fill(slot, &values);
            for at in 0..(*descriptor).natts as usize {
                let given = !*(*slot).tts_isnull.add(at);
                assert!(given || !attribute(descriptor, at).attnotnull, "column {} may not be NULL", at + 1);
            }
            pg_sys::ExecStoreVirtualTuple(slot);
            slot
        }
    }

    /// Writes the rows that wait.
    fn write(&mut self) {
        self.level.check();
        if self.waiting == 0 {
            return;
        }
        let (relation, routine) = (self.relation, self.routine());
        let slots = &mut self.slots[..std::mem::take(&mut self.waiting)];
        // SAFETY: the slots have rows of the table's shape, and get to know where these lie. What the access method
        // allocates is in the memory of the rows.
        unsafe {
            let before = pg_sys::MemoryContextSwitchTo(self.memory);
            let command = pg_sys::GetCurrentCommandId(true);
            let none = std::ptr::null_mut();
            match *slots {
                [slot] => {
                    let Some(insert) = routine.tuple_insert else { pgrx::error!("no insertions") };
                    pg_guard_ffi_boundary(|| insert(relation, slot, command, 0, none));
                }
                _ => {
                    let Some(insert) = routine.multi_insert else { pgrx::error!("no insertions") };
                    let (first, number) = (slots.as_mut_ptr(), slots.len() as i32);
                    pg_guard_ffi_boundary(|| insert(relation, first, number, command, 0, none));
                }
            }
            pg_sys::MemoryContextSwitchTo(before);
            for slot in slots {
                self.indexes.add(*slot, false, false);
                self.indexes.forget_row();
                clear(*slot);
            }
            pg_sys::MemoryContextReset(self.memory);
        }
    }

    /// Writes a row on trial: it stays if nobody has its key. Tells whether it has.
    ///
    /// # Safety
    /// `slot` has a row of the table's shape.
    unsafe fn tried(&mut self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        let (relation, routine) = (self.relation, self.routine());
        // SAFETY: as the executor does it, see ExecInsert.
        unsafe {
            let (Some(insert), Some(complete)) =
                (routine.tuple_insert_speculative, routine.tuple_complete_speculative)
            else {
                pgrx::error!("no insertions on trial")
            };
            let me = pg_sys::GetCurrentTransactionId();
            let trial = pg_sys::SpeculativeInsertionLockAcquire(me);
            let command = pg_sys::GetCurrentCommandId(true);
            let none = std::ptr::null_mut();
            pg_guard_ffi_boundary(|| insert(relation, slot, command, 0, none, trial));
            let stays = self.indexes.add_on_trial(slot);
            pg_guard_ffi_boundary(|| complete(relation, slot, trial, stays));
            pg_sys::SpeculativeInsertionLockRelease(me);
            self.indexes.forget_row();
            stays
        }
    }

    fn routine(&self) -> &'static pg_sys::TableAmRoutine {
        // SAFETY: the table is open as long as this is there.
        unsafe { routine(self.relation) }
    }
}

/// The indexes of a table, open for entries.
struct Indexes {
    result: *mut pg_sys::ResultRelInfo,
    state: *mut pg_sys::EState,
    /// The unique indexes in which others may have the keys of new rows; empty: none.
    arbiters: *mut pg_sys::List,
}

impl Indexes {
    /// # Safety
    /// `relation` is open, and stays so until this is closed.
    unsafe fn open(relation: pg_sys::Relation, arbiter: Option<pg_sys::Oid>) -> Self {
        // SAFETY: as Postgres does where it applies the changes of a subscription: an executor state without a plan.
        unsafe {
            let state = pg_sys::CreateExecutorState();
            let result =
                pg_sys::palloc0(std::mem::size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
            // In no range table: which columns an update has changed is only a hint, and is not asked then.
            pg_sys::InitResultRelInfo(result, relation, 0, std::ptr::null_mut(), 0);
            pg_sys::ExecOpenIndices(result, arbiter.is_some());
            let arbiters = arbiter.map_or(std::ptr::null_mut(), |oid| same_key(result, oid));
            Indexes { result, state, arbiters }
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

    /// The same for a row that is there on trial. Tells whether it may stay: nobody has its key.
    ///
    /// # Safety
    /// As for [`Indexes::add`].
    unsafe fn add_on_trial(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        assert!(!self.arbiters.is_null(), "no unique index was named");
        let mut taken = false;
        // SAFETY: as the caller says. The list that is returned has the index if the key may be taken.
        unsafe {
            let again = pg_sys::ExecInsertIndexTuples(
                self.result,
                slot,
                self.state,
                false,
                true,
                &mut taken,
                self.arbiters,
                #[cfg(not(any(feature = "pg14", feature = "pg15")))]
                false,
            );
            pg_sys::list_free(again);
        }
        !taken
    }

    /// Waits for whoever is inserting or removing a row with the key, and tells whether there is none then.
    ///
    /// # Safety
    /// `slot` has a row of the table's shape.
    unsafe fn is_free(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        let mut there = pg_sys::ItemPointerData::default();
        // SAFETY: as the caller says; the indexes were opened for this.
        unsafe {
            let free = pg_sys::ExecCheckIndexConstraints(
                self.result,
                slot,
                self.state,
                &mut there,
                #[cfg(feature = "pg18")]
                &mut pg_sys::ItemPointerData::default(),
                self.arbiters,
            );
            self.forget_row();
            free
        }
    }

    /// Memory for the values of some rows.
    fn memory_of_rows(&self) -> pg_sys::MemoryContext {
        // SAFETY: it goes with the executor state.
        unsafe {
            pg_sys::AllocSetContextCreateInternal(
                (*self.state).es_query_cxt,
                c"rows to insert".as_ptr(),
                pg_sys::ALLOCSET_SMALL_MINSIZE as usize,
                pg_sys::ALLOCSET_SMALL_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            )
        }
    }

    /// What the conditions of partial indexes have allocated for a row goes.
    fn forget_row(&self) {
        // SAFETY: the executor state has an expression context once it was asked for one.
        unsafe {
            let context = (*self.state).es_per_tuple_exprcontext;
            if !context.is_null() {
                pg_sys::MemoryContextReset((*context).ecxt_per_tuple_memory);
            }
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
            pg_sys::list_free(self.arbiters);
        }
    }
}

/// The unique indexes with the key of this one. While an index is rebuilt concurrently, and after that has failed, there is
/// another one beside it, in which a key is taken as well.
///
/// # Safety
/// The indexes of the table were opened.
unsafe fn same_key(table: *mut pg_sys::ResultRelInfo, index: pg_sys::Oid) -> *mut pg_sys::List {
    // SAFETY: as the caller says: there are as many descriptions as indexes.
    unsafe {
        let number = (*table).ri_NumIndices as usize;
        let open = |at: usize| (*(*(*table).ri_IndexRelationDescs.add(at))).rd_id;
        let key = |at: usize| {
            let about = &**(*table).ri_IndexRelationInfo.add(at);
            let plain = about.ii_Unique && about.ii_Predicate.is_null() && about.ii_Expressions.is_null();
            plain.then(|| about.ii_IndexAttrNumbers[..about.ii_NumIndexKeyAttrs as usize].to_vec())
        };
        let Some(named) = (0..number).find(|at| open(*at) == index) else {
            pgrx::error!("an index of the queue is not ready for entries")
        };
        let same = (0..number).filter(|at| key(*at).is_some() && key(*at) == key(named));
        same.fold(std::ptr::null_mut(), |list, at| pg_sys::lappend_oid(list, open(at)))
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
            let indexes = Indexes::open(relation, None);
            indexes.add(slot, true, only_summarizing);
            indexes.close();
        }
    }
}
