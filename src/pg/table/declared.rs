//! Tables and their indexes, as `store` declares them.

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::pg::named::Named;

/// A table of the queue's schema.
pub(crate) struct Table {
    /// Its name, and its oid once that has been looked up.
    pub(super) name: Named,
    /// Those of its partial indexes that many a row does not belong into.
    pub(super) partial: &'static [Partial],
}

impl Table {
    /// A table of this name. `partial`: those of its partial indexes that need not be open for every row.
    pub(crate) const fn new(name: &'static CStr, partial: &'static [Partial]) -> Self {
        Table { name: Named::new(name), partial }
    }

    /// The table that has the name now; an error if there is none.
    pub(in crate::pg) fn oid(&self) -> pg_sys::Oid {
        self.name.oid()
    }
}

/// An index of such a table.
pub(crate) struct Index {
    /// The table that it is an index of.
    pub(super) table: &'static Table,
    /// Its name, and its oid once that has been looked up.
    pub(super) name: Named,
    /// Many a queue never has a row in the table: it is asked whether it has pages before the index is opened.
    pub(super) mostly_empty: bool,
}

impl Index {
    /// An index of this name of the table.
    pub(crate) const fn new(table: &'static Table, name: &'static CStr) -> Self {
        Index { table, name: Named::new(name), mostly_empty: false }
    }

    /// The same for a table in which many a queue never has a row.
    pub(crate) const fn of_mostly_empty(table: &'static Table, name: &'static CStr) -> Self {
        Index { table, name: Named::new(name), mostly_empty: true }
    }
}

/// An index with rows that have something in one column only. It is not opened for an insertion where no row has.
pub(crate) struct Partial {
    /// Its name, and its oid once that has been looked up.
    pub(super) index: Named,
    column: i16,
    has: Has,
}

/// What a row of a partial index has in its column.
#[derive(Clone, Copy)]
pub(crate) enum Has {
    Something,
    /// Another number than 0.
    NotZero,
}

impl Partial {
    /// An index of this name; `column`, counted from 1, is the one that its condition is about.
    pub(crate) const fn new(index: &'static std::ffi::CStr, column: i16, has: Has) -> Self {
        Partial { index: Named::new(index), column, has }
    }

    /// Whether the row belongs into the index.
    ///
    /// # Safety
    /// `slot` has a row of the table, all of its columns at hand.
    pub(super) unsafe fn has(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        let at = usize::from(self.column.unsigned_abs()) - 1;
        // SAFETY: as the caller says; a number that is compared with 0 is one that a datum is, not points to.
        unsafe {
            assert!(at < (*(*slot).tts_tupleDescriptor).natts as usize, "a table has fewer columns");
            let given = !*(*slot).tts_isnull.add(at);
            match self.has {
                Has::Something => given,
                Has::NotZero => given && (*(*slot).tts_values.add(at)).value() != 0,
            }
        }
    }
}
