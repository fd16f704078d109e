//! Walking along an index.

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

use super::columns::{Column, Read};
use super::declared::{Index, Table};
use super::look::{Level, Look};
use super::open::routine;
use super::steps;
use crate::pg::arg::Arg;
use crate::pg::descriptor::attribute;
use crate::pg::row_version::{Fate, fate};
use crate::pg::{quiet, session};

/// A condition on a column of an index.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    /// Counted from 1.
    column: i16,
    strategy: u32,
    value: Arg,
}

impl Key {
    /// Column `column` of the index, counted from 1, is equal to the value, which is not NULL.
    pub(crate) fn eq<T: pgrx::IntoDatum>(column: i16, value: T) -> Self {
        Key { column, strategy: pg_sys::BTEqualStrategyNumber, value: Arg::new(value) }
    }

    /// Column `column` of the index, counted from 1, has the value or a greater one.
    pub(crate) fn at_least<T: pgrx::IntoDatum>(column: i16, value: T) -> Self {
        Key { column, strategy: pg_sys::BTGreaterEqualStrategyNumber, value: Arg::new(value) }
    }

    /// Column `column` of the index, counted from 1, has the value or a smaller one.
    pub(crate) fn at_most<T: pgrx::IntoDatum>(column: i16, value: T) -> Self {
        Key { column, strategy: pg_sys::BTLessEqualStrategyNumber, value: Arg::new(value) }
    }

    /// The function that compares a column of this type with the value.
    fn function(&self, of: pg_sys::Oid) -> u32 {
        use pg_sys::{
            BTEqualStrategyNumber as EQ, BTGreaterEqualStrategyNumber as GE, BTLessEqualStrategyNumber as LE,
        };
        match (of, self.strategy) {
            (pg_sys::INT4OID, EQ) => pg_sys::F_INT4EQ,
            (pg_sys::INT4OID, GE) => pg_sys::F_INT4GE,
            (pg_sys::INT4OID, LE) => pg_sys::F_INT4LE,
            (pg_sys::INT8OID, EQ) => pg_sys::F_INT8EQ,
            (pg_sys::INT8OID, GE) => pg_sys::F_INT8GE,
            (pg_sys::INT8OID, LE) => pg_sys::F_INT8LE,
            (pg_sys::TIMESTAMPTZOID, EQ) => pg_sys::F_TIMESTAMPTZ_EQ,
            (pg_sys::TIMESTAMPTZOID, GE) => pg_sys::F_TIMESTAMPTZ_GE,
            (pg_sys::TIMESTAMPTZOID, LE) => pg_sys::F_TIMESTAMPTZ_LE,
            (pg_sys::TEXTOID, EQ) => pg_sys::F_TEXTEQ,
            (of, strategy) => pgrx::error!("no comparison {strategy} of type {of:?}"),
        }
    }

    /// # Safety
    /// `index` is open.
    unsafe fn on(&self, index: pg_sys::Relation) -> pg_sys::ScanKeyData {
        // SAFETY: an index has as many operator classes as key columns, and each has its type; the column is one of
        // them: asserted. The function is one for two values of that type: the value's is asked. A collation is that
        // of the column, which is "C" for each text of the queue's; so is what `ScanKeyInit` sets.
        unsafe {
            let columns = (*(*index).rd_index).indnkeyatts;
            assert!((1..=columns).contains(&self.column), "an index has {columns} columns");
            let at = usize::from(self.column.unsigned_abs()) - 1;
            let of = *(*index).rd_opcintype.add(at);
            assert!(of == self.value.type_oid(), "type of a key");
            if of == pg_sys::TEXTOID {
                assert!(*(*index).rd_indcollation.add(at) == pg_sys::C_COLLATION_OID, "collation of a key");
            }
            let Some(value) = self.value.datum else { pgrx::error!("a key is NULL") };
            quiet::scan_key(self.column, self.strategy as pg_sys::StrategyNumber, self.function(of), value)
        }
    }
}

/// What is done with the rows that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Change,
}

impl Access {
    fn lock(self) -> u32 {
        match self {
            Access::Read => pg_sys::AccessShareLock,
            Access::Change => pg_sys::RowExclusiveLock,
        }
    }
}

/// An index that is being looked into, with its table.
pub(crate) struct Scan<'l> {
    /// The look that it belongs to, with the snapshot by which rows are seen.
    pub(super) look: &'l Look,
    /// Whether rows are read only, or changed.
    pub(super) access: Access,
    /// The table, open and locked for that access.
    pub(super) table: pg_sys::Relation,
    /// How many pages it had when that was last asked.
    pages: u32,
    of: &'static Index,
    /// Null before the first look.
    index: pg_sys::Relation,
    /// The table is mostly empty, and had no pages when it was asked.
    empty: bool,
    /// Null before the first look.
    scan: pg_sys::IndexScanDesc,
    keys: usize,
    /// It finds what is dead as well.
    dead_too: bool,
    /// For the row that was found last. Null until needed.
    slot: *mut pg_sys::TupleTableSlot,
    /// For a newer version of it. Null until needed.
    pub(super) newer: std::cell::Cell<*mut pg_sys::TupleTableSlot>,
    /// For a version that is about to be written. Null until needed.
    pub(super) changed: std::cell::Cell<*mut pg_sys::TupleTableSlot>,
    /// The subtransaction in which it was begun, and in which alone it is used.
    pub(super) level: Level,
}

impl Look {
    /// Looks into an index, to read.
    pub(crate) fn scan<R>(&self, index: &'static Index, work: impl FnOnce(&mut Scan) -> R) -> R {
        self.with(index, Access::Read, work)
    }

    /// Looks into an index for rows to be changed.
    pub(crate) fn changing<R>(&self, index: &'static Index, work: impl FnOnce(&mut Scan) -> R) -> R {
        self.with(index, Access::Change, work)
    }

    fn with<R>(&self, index: &'static Index, access: Access, work: impl FnOnce(&mut Scan) -> R) -> R {
        self.level.check();
        // SAFETY: table and index are opened and closed here; so are scan and slots. `work` has them by reference and can
        // keep nothing. If it ends in an error, they go with the resource owner and the memory of the (sub)transaction
        // that is rolled back for it.
        unsafe {
            let mut scan = self.begin(index, access);
            let result = work(&mut scan);
            self.level.check();
            scan.end();
            result
        }
    }

    /// # Safety
    /// What is returned is ended by [`Scan::end`] in the same subtransaction, or forgotten when that is rolled back.
    unsafe fn begin(&self, index: &'static Index, access: Access) -> Scan<'_> {
        // SAFETY: the caller closes what is opened.
        unsafe {
            Scan {
                look: self,
                access,
                table: self.open(index.table, access.lock()),
                pages: 0,
                of: index,
                index: std::ptr::null_mut(),
                empty: false,
                scan: std::ptr::null_mut(),
                keys: 0,
                dead_too: false,
                slot: std::ptr::null_mut(),
                newer: Default::default(),
                changed: Default::default(),
                level: self.level,
            }
        }
    }

    /// The first row with these keys, in the order of the index.
    pub(crate) fn first<T>(
        &self,
        index: &'static Index,
        keys: &[Key],
        read: impl FnOnce(&Row) -> T,
    ) -> Option<T> {
        self.scan(index, |scan| scan.first(keys, read))
    }
}

impl Scan<'_> {
    /// Opens the index, unless there is nothing to be found by it.
    fn has_index(&mut self) -> bool {
        if self.index.is_null() && !self.empty {
            let Index { name, mostly_empty, .. } = self.of;
            // SAFETY: the table is open, the snapshot was taken, and the scan's end closes what is opened. An index of that
            // table, since its name says so: asserted.
            unsafe {
                self.index = steps::open_index(self.table, name.oid(), *mostly_empty);
                self.empty = self.index.is_null();
                let is_its = self.empty || (*(*self.index).rd_index).indrelid == (*self.table).rd_id;
                assert!(is_its, "an index of another table");
            }
        }
        !self.empty
    }

    /// The table, as it is declared.
    pub(super) fn declared(&self) -> &'static Table {
        self.of.table
    }

    /// Whether the table has this page. It loses none while it is open here: truncating it needs an exclusive lock.
    fn has_page(&mut self, page: u32) -> bool {
        if self.pages <= page {
            // SAFETY: it is open.
            self.pages = unsafe { steps::pages(self.table) };
        }
        self.pages > page
    }

    /// Has it find a row for each entry of the index, in whatever version: dead ones too, and what is not committed. What the
    /// index has of them is all that they are good for. To be called before it begins.
    pub(crate) fn dead_too(&mut self) {
        assert!(self.scan.is_null(), "a scan keeps the snapshot that it began with");
        self.dead_too = true;
    }

    /// Begins, or begins anew, at the first row with these keys.
    pub(crate) fn start(&mut self, keys: &[Key]) {
        self.level.check();
        if !self.has_index() {
            return;
        }
        let snapshot = if self.dead_too { &raw mut pg_sys::SnapshotAnyData } else { self.look.snapshot() };
        // SAFETY: index and table are open, the snapshot is registered, or the server's own that shows every version of a
        // row. A scan takes as many keys as it was begun with.
        unsafe {
            let mut conditions: Vec<pg_sys::ScanKeyData> =
                keys.iter().map(|key| key.on(self.index)).collect();
            if !self.scan.is_null() && self.keys != keys.len() {
                steps::end_scan(std::mem::replace(&mut self.scan, std::ptr::null_mut()));
            }
            self.keys = keys.len();
            self.scan = steps::start(self.scan, self.table, self.index, snapshot, &mut conditions);
        }
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> Option<Row<'_>> {
        self.level.check();
        if self.scan.is_null() {
            return None;
        }
        let look = self.look;
        // SAFETY: the scan was begun, in this subtransaction; the slot is one of its table's.
        let found = look.counted(|| unsafe { steps::next(self.scan, self.table, &mut self.slot) });
        found.then_some(Row { scan: self, slot: self.slot })
    }

    /// Whether nothing can be found by the index: no row was entered when it was built or since, or its mostly empty table has
    /// no pages. (Where reading is kept account of, it is to be looked into all the same.)
    pub(crate) fn is_bare(&mut self) -> bool {
        // SAFETY: the index is open if it is asked. It has a page that says where the others are, and with the first entry
        // another one, before a snapshot shows the row.
        !self.has_index() || !session::is_serializable() && unsafe { steps::pages(self.index) } <= 1
    }

    /// A slot for rows of the table.
    pub(super) fn new_slot(&self) -> *mut pg_sys::TupleTableSlot {
        // SAFETY: the table is open. The scan drops the slot at its end.
        unsafe { pg_sys::table_slot_create(self.table, std::ptr::null_mut()) }
    }

    /// The row whose version lies here, if the snapshot shows that version. Where nothing lies, there is none.
    pub(crate) fn at(&mut self, mut place: pg_sys::ItemPointerData) -> Option<Row<'_>> {
        self.level.check();
        if !self.has_page(block(place)) {
            return None;
        }
        if self.slot.is_null() {
            self.slot = self.new_slot();
        }
        // SAFETY: the slot is one of the table's; the entry point looks into the block that the place names, which exists, and
        // finds nothing where that has no such row.
        let found = unsafe {
            let Some(fetch) = routine(self.table).tuple_fetch_row_version else {
                pgrx::error!("no fetching")
            };
            let (table, snapshot, slot) = (self.table, self.look.snapshot(), self.slot);
            pg_guard_ffi_boundary(|| fetch(table, &mut place, snapshot, slot))
        };
        found.then_some(Row { scan: self, slot: self.slot })
    }

    /// The first row with these keys.
    pub(crate) fn first<T>(&mut self, keys: &[Key], read: impl FnOnce(&Row) -> T) -> Option<T> {
        self.start(keys);
        self.next().map(|row| read(&row))
    }

    /// # Safety
    /// To be called in the subtransaction in which it was begun.
    unsafe fn end(self) {
        // SAFETY: all of it was begun by [`Look::begin`], or by what came after, and is not used any more.
        unsafe {
            let slots = [self.slot, self.newer.get(), self.changed.get()];
            steps::end(self.scan, slots, self.index, self.table);
        }
    }
}

/// The block that a row lies in.
pub(super) fn block(place: pg_sys::ItemPointerData) -> u32 {
    u32::from(place.ip_blkid.bi_hi) << 16 | u32::from(place.ip_blkid.bi_lo)
}

/// A row that a scan has found, or a newer version of it.
pub(crate) struct Row<'s> {
    /// The scan that has found it; it cannot go on while the row is there.
    pub(super) scan: &'s Scan<'s>,
    /// Where the row is held: a slot of the scan.
    pub(super) slot: *mut pg_sys::TupleTableSlot,
}

impl Row<'_> {
    /// The value of a column.
    pub(crate) fn get<T: Read>(&self, column: Column<T>) -> T {
        let number = column.number;
        // SAFETY: the slot has a row as long as this is there. The column is one of the table's, and its type is asked
        // before the datum is read as one; what is read owns what it has.
        unsafe {
            let descriptor = (*self.slot).tts_tupleDescriptor;
            let at = usize::from(number.unsigned_abs()) - 1;
            assert!(at < (*descriptor).natts as usize, "a table has fewer than {number} columns");
            let of = attribute(descriptor, at).atttypid;
            assert!(T::is_stored_as(of), "column {number} has type {of:?}");
            if (*self.slot).tts_nvalid < number {
                // All of them: a caller that asks for one asks for others.
                pg_sys::slot_getsomeattrs_int(self.slot, (*descriptor).natts);
            }
            T::read(*(*self.slot).tts_values.add(at), *(*self.slot).tts_isnull.add(at))
        }
    }

    /// Where this version of the row lies.
    pub(crate) fn place(&self) -> pg_sys::ItemPointerData {
        // SAFETY: the slot has a row.
        unsafe { (*self.slot).tts_tid }
    }

    /// What has become by now of this version of the row, whatever the look shows.
    pub(crate) fn fate(&self) -> Fate {
        // SAFETY: the table is open while the scan is there, and a heap; the version lies in it.
        unsafe { fate(self.scan.table, self.place()) }
    }
}
