//! Inserting rows, and the index entries of rows.

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

use super::change::{fill, refuse_if_read_only, virtual_slot};
use super::columns::Set;
use super::declared::{Index, Table};
use super::indexes::Indexes;
use super::look::Level;
use super::open::{open, routine};
use super::steps;
use crate::pg::descriptor::attribute;
use crate::pg::session::check_for_interrupts;

/// After how many rows, or with how much memory for their values, those that wait are written.
const MOST_WAITING: usize = 500;
const MOST_MEMORY: usize = 256 * 1024;

/// A table that rows are being inserted into.
pub(crate) struct Insertion {
    relation: pg_sys::Relation,
    indexes: Indexes,
    /// A copy of the table's descriptor without a count of references; null before the second slot.
    shape: pg_sys::TupleDesc,
    /// The first `waiting` have rows that are still to be written.
    slots: Vec<*mut pg_sys::TupleTableSlot>,
    waiting: usize,
    /// What the values of these rows are made of.
    memory: pg_sys::MemoryContext,
    level: Level,
    /// Where the row lies that was written last, those on trial aside.
    last: pg_sys::ItemPointerData,
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
        let (indexes, memory) = Indexes::open(table, relation, unique.map(|index| index.name.oid()));
        let mut insertion = Insertion {
            relation,
            indexes,
            shape: std::ptr::null_mut(),
            slots: Vec::new(),
            waiting: 0,
            memory,
            level,
            last: Default::default(),
        };
        let result = work(&mut insertion);
        insertion.write();
        let Insertion { indexes, slots, .. } = insertion;
        pg_sys::list_free(indexes.arbiters);
        steps::end_insertion(&slots, indexes.result, indexes.state, relation);
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

    /// Inserts a row unless there is one with its key in the index that was named. Waits for transactions that are
    /// inserting or removing such a row. Returns whether it has inserted it.
    ///
    /// As `INSERT … ON CONFLICT DO NOTHING` does it, except that it does not look first: the row is written on trial, and
    /// others that meet it wait for the outcome of the trial, not for this transaction. If its key turns out to be taken,
    /// the row is undone before this call waits for another transaction, so that no two wait for each other's trials.
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
            steps::clear(&[slot]);
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
        // that wait, which is reset once they are written; a slot whose row has been written is empty. If making them ends
        // in an error, the code that catches it puts the memory context back.
        unsafe {
            let table = (*self.relation).rd_att;
            if self.slots.len() == self.waiting {
                let shape = self.shape();
                self.slots.push(virtual_slot(shape));
            }
            let slot = self.slots[self.waiting];
            let before = pg_sys::MemoryContextSwitchTo(self.memory);
            let values = values();
            pg_sys::MemoryContextSwitchTo(before);
            for at in 0..(*table).natts as usize {
                *(*slot).tts_isnull.add(at) = true;
            }
            fill(slot, &values);
            for at in 0..(*table).natts as usize {
                let given = !*(*slot).tts_isnull.add(at);
                assert!(given || !attribute(table, at).attnotnull, "column {} may not be NULL", at + 1);
            }
            pg_sys::ExecStoreVirtualTuple(slot);
            slot
        }
    }

    /// The descriptor for one more slot. Each slot that has the table's own counts as a use of it, and to keep count of
    /// hundreds takes time.
    fn shape(&mut self) -> pg_sys::TupleDesc {
        // SAFETY: the table is open; the copy goes with the executor state, after the slots.
        unsafe {
            let of_table = (*self.relation).rd_att;
            if self.slots.is_empty() {
                return of_table;
            }
            if self.shape.is_null() {
                let before = pg_sys::MemoryContextSwitchTo((*self.indexes.state).es_query_cxt);
                self.shape = pg_sys::CreateTupleDescCopy(of_table);
                pg_sys::MemoryContextSwitchTo(before);
            }
            self.shape
        }
    }

    /// Writes the rows that wait; where the last lies that [`Insertion::row`] was given.
    pub(crate) fn place_of_last(&mut self) -> pg_sys::ItemPointerData {
        self.write();
        self.last
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
            self.indexes.open_for(slots);
            self.indexes.add_all(slots);
            self.last = slots.last().map_or(self.last, |slot| (**slot).tts_tid);
            steps::clear(slots);
            pg_sys::MemoryContextReset(self.memory);
        }
    }

    /// Writes a row on trial: it stays if no other row has its key. Returns whether it stays.
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
            self.indexes.open_for(&[slot]);
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
