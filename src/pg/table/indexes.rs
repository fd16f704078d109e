//! The index entries of rows.

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

use super::declared::{Partial, Table};
use super::steps;

/// The indexes of a table, open for entries. Opening one and preparing its condition takes time, and some tables have many
/// partial indexes: of those that a table declares as such only those are opened that some row belongs into.
pub(super) struct Indexes {
    /// The table with those of its indexes that are open, as the executor takes it.
    pub(super) result: *mut pg_sys::ResultRelInfo,
    /// The executor state in whose memory entries are made up; freed by [`steps::end_insertion`].
    pub(super) state: *mut pg_sys::EState,
    /// The unique indexes in which others may have the keys of new rows; empty: none.
    pub(super) arbiters: *mut pg_sys::List,
    /// Those that are not open.
    closed: Vec<(&'static Partial, pg_sys::Oid)>,
}

impl Indexes {
    /// The indexes, and memory for the values of some rows.
    ///
    /// **No entry is missed.** The table is locked until this transaction ends. A session that makes or drops an index has to
    /// wait for that, unless it does so concurrently; then it waits for this transaction before it relies on an index that this
    /// transaction does not know, and before it drops one that it does. While an index is rebuilt concurrently there are two;
    /// the one that does not bear the name is opened as any other, whichever of the two that is by now.
    ///
    /// # Safety
    /// `relation` is `table`, is open, and stays so until [`steps::end_insertion`].
    pub(super) unsafe fn open(
        table: &'static Table,
        relation: pg_sys::Relation,
        arbiter: Option<pg_sys::Oid>,
    ) -> (Self, pg_sys::MemoryContext) {
        // SAFETY: as the caller says. The list is a copy, of OIDs.
        unsafe {
            let list = steps::indexes(relation);
            let all = if list.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts((*list).elements, (*list).length as usize)
            };
            let of = |oid: pg_sys::Oid| table.partial.iter().find(|partial| partial.index.is(oid));
            let all = all.iter().map(|element| (of(element.oid_value), element.oid_value));
            let (closed, open): (Vec<_>, Vec<_>) = all.partition(|(partial, _)| partial.is_some());
            let closed = closed.into_iter().filter_map(|(partial, oid)| Some((partial?, oid))).collect();
            let open: Vec<pg_sys::Oid> = open.into_iter().map(|(_, oid)| oid).collect();
            let (result, state, memory) = steps::open_indexes(relation, list, &open, arbiter.is_some());
            let arbiters = arbiter.map_or(std::ptr::null_mut(), |oid| same_key(result, oid));
            (Indexes { result, state, arbiters, closed }, memory)
        }
    }

    /// Opens those that some of the rows belong into.
    ///
    /// # Safety
    /// The slots have rows of the table, all of their columns at hand.
    pub(super) unsafe fn open_for(&mut self, slots: &[*mut pg_sys::TupleTableSlot]) {
        // SAFETY: as the caller says.
        unsafe {
            let needed = |(partial, _): &mut (&Partial, _)| slots.iter().any(|slot| partial.has(*slot));
            let open: Vec<pg_sys::Oid> = self.closed.extract_if(.., needed).map(|(_, oid)| oid).collect();
            if !open.is_empty() {
                steps::open_more_indexes(self.result, self.state, &open);
            }
        }
    }

    /// # Safety
    /// `slot` has a row of the table, which has been written.
    pub(super) unsafe fn add(&self, slot: *mut pg_sys::TupleTableSlot, update: bool, only_summarizing: bool) {
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

    /// Adds the entries of several new rows.
    ///
    /// # Safety
    /// The slots have rows of the table, which have been written.
    pub(super) unsafe fn add_all(&self, slots: &[*mut pg_sys::TupleTableSlot]) {
        // SAFETY: as the caller says.
        unsafe { steps::add_entries(self.result, self.state, slots) }
    }

    /// Adds the entries of a row that is there on trial. Returns whether it may stay: no other row has its
    /// key.
    ///
    /// # Safety
    /// As for [`Indexes::add`].
    pub(super) unsafe fn add_on_trial(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
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

    /// Waits for transactions that are inserting or removing a row with the key, and returns whether there is
    /// none then.
    ///
    /// # Safety
    /// `slot` has a row of the table's shape.
    pub(super) unsafe fn is_free(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
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

    /// What the conditions of partial indexes have allocated for a row goes.
    pub(super) fn forget_row(&self) {
        // SAFETY: behind a guard.
        unsafe { pg_guard_ffi_boundary(|| steps::forget_row(self.state)) }
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
/// The same from PostgreSQL 16 on.
#[cfg(not(any(feature = "pg14", feature = "pg15")))]
pub(super) type Needed = pg_sys::TU_UpdateIndexes::Type;

/// Adds the index entries of a new version of a row, if it needs any: a heap-only one does not.
///
/// # Safety
/// `relation` is open, and `slot` has the version, which has been written.
pub(super) unsafe fn add_index_entries(
    table: &'static Table,
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
            let (mut indexes, _) = Indexes::open(table, relation, None);
            indexes.open_for(&[slot]);
            indexes.add(slot, true, only_summarizing);
            steps::end_insertion(&[], indexes.result, indexes.state, std::ptr::null_mut());
        }
    }
}
