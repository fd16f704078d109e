//! Changing and removing rows that were found.

use std::cell::Cell;

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{LockTupleMode, LockWaitPolicy, TM_Result};

use super::columns::Set;
use super::indexes::add_index_entries;
use super::open::routine;
use super::scan::{Access, Row, Scan};
use super::steps;
use crate::pg::descriptor::attribute;
use crate::pg::{session, throw};

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Done,
    /// Another transaction is changing the row, or has it locked.
    Busy,
    /// Another transaction has changed the row since the look, and committed.
    Newer,
    /// It has gone since.
    Gone,
}

/// What to do if another transaction has the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Leave it.
    No,
    /// Wait for the end of that transaction.
    Yes,
}

/// How strongly rows are locked, in PostgreSQL's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockStrength {
    /// About to be changed or removed.
    Update,
    /// Others may change columns of no unique index, but neither remove the row nor change its key.
    KeyShare,
}

impl LockStrength {
    fn mode(self) -> LockTupleMode::Type {
        match self {
            LockStrength::Update => LockTupleMode::LockTupleExclusive,
            LockStrength::KeyShare => LockTupleMode::LockTupleKeyShare,
        }
    }
}

/// Which version of a row is locked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    This,
    Newest,
}

impl Change {
    fn of(result: TM_Result::Type) -> Self {
        match result {
            TM_Result::TM_Ok => Change::Done,
            TM_Result::TM_BeingModified | TM_Result::TM_WouldBlock => Change::Busy,
            TM_Result::TM_Updated => Change::Newer,
            TM_Result::TM_Deleted => Change::Gone,
            TM_Result::TM_SelfModified => pgrx::error!("a row of the queue is changed twice by one look"),
            other => pgrx::error!("a change of a row of the queue came to {other}"),
        }
    }
}

impl Row<'_> {
    /// Writes a new version of the row with these values, unless another transaction has it. No key of the table may
    /// change.
    pub(crate) fn update(&self, values: &[Set]) -> Change {
        self.scan.check_access();
        refuse_if_read_only();
        // SAFETY: the row lies in the open table, the new version in a slot of its shape. The snapshot is for
        // serializable transactions to tell what was seen; the lock mode and the need for index entries are written
        // to variables of the types that the server's version has.
        unsafe {
            let slot = self.version(values);
            // An update that must not wait would report a row as busy that only this transaction has locked.
            if self.is_locked() {
                return self.try_update(slot, true);
            }
            let result = self.try_update(slot, false);
            let is_free =
                || self.lock(LockTupleMode::LockTupleNoKeyExclusive, Wait::No, Version::This, self.scratch());
            if result == Change::Busy && is_free() == Change::Done {
                // It was this transaction that had it, or one whose lock does not conflict: it only refers to
                // the row.
                return self.try_update(slot, true);
            }
            result
        }
    }

    /// Where the new version lies that [`Row::update`] has written.
    pub(crate) fn place_of_update(&self) -> pg_sys::ItemPointerData {
        let slot = self.scan.changed.get();
        assert!(!slot.is_null(), "nothing was updated");
        // SAFETY: the slot is there as long as the scan is; the access method has put the place into it.
        unsafe { (*slot).tts_tid }
    }

    /// Whether this is the version that [`Row::newest`], [`Row::newest_to_update`] or [`Row::locked`] has locked.
    fn is_locked(&self) -> bool {
        self.slot == self.scan.newer.get()
    }

    /// # Safety
    /// `slot` has a version of a row of the table.
    unsafe fn try_update(&self, slot: *mut pg_sys::TupleTableSlot, wait: bool) -> Change {
        let relation = self.scan.table;
        // SAFETY: see [`Row::update`].
        unsafe {
            let Some(update) = routine(relation).tuple_update else { pgrx::error!("no updates") };
            let mut place = self.place();
            let mut failure = pg_sys::TM_FailureData::default();
            let mut mode = LockTupleMode::LockTupleNoKeyExclusive;
            let mut indexes = Default::default();
            let command = pg_sys::GetCurrentCommandId(true);
            let snapshot = self.scan.look.snapshot();
            let result = pg_guard_ffi_boundary(|| {
                update(
                    relation,
                    &mut place,
                    slot,
                    command,
                    snapshot,
                    std::ptr::null_mut(),
                    wait,
                    &mut failure,
                    &mut mode,
                    &mut indexes,
                )
            });
            if result == TM_Result::TM_Ok {
                add_index_entries(self.scan.declared(), relation, slot, indexes);
            }
            Change::of(result)
        }
    }

    /// Removes the row.
    pub(crate) fn delete(&self, wait: Wait) -> Change {
        self.scan.check_access();
        refuse_if_read_only();
        // SAFETY: as in [`Row::update`].
        unsafe {
            if wait == Wait::Yes || self.is_locked() {
                return self.try_delete(true);
            }
            let result = self.try_delete(false);
            let is_free =
                || self.lock(LockTupleMode::LockTupleExclusive, Wait::No, Version::This, self.scratch());
            if result == Change::Busy && is_free() == Change::Done {
                return self.try_delete(true);
            }
            result
        }
    }

    /// Removes the row in whatever version there is by now; waits for the transaction that has it.
    pub(crate) fn delete_newest(&self) {
        if self.delete(Wait::Yes) == Change::Newer {
            let _ = self.newest(Wait::Yes, |row| row.delete(Wait::Yes));
        }
    }

    /// # Safety
    /// The row lies in the open table.
    unsafe fn try_delete(&self, wait: bool) -> Change {
        let relation = self.scan.table;
        // SAFETY: as in [`Row::update`].
        unsafe {
            let Some(delete) = routine(relation).tuple_delete else { pgrx::error!("no deletions") };
            let mut place = self.place();
            let mut failure = pg_sys::TM_FailureData::default();
            let command = pg_sys::GetCurrentCommandId(true);
            let snapshot = self.scan.look.snapshot();
            Change::of(pg_guard_ffi_boundary(|| {
                delete(
                    relation,
                    &mut place,
                    command,
                    snapshot,
                    std::ptr::null_mut(),
                    wait,
                    &mut failure,
                    false,
                )
            }))
        }
    }

    /// Locks the newest version of the row, which may be this one, FOR UPDATE, and hands it to `see`. Otherwise says what is in
    /// the way: the row is gone, or a transaction has it for which we are not to wait.
    pub(crate) fn newest<T>(&self, wait: Wait, see: impl FnOnce(&Row) -> T) -> Result<T, Change> {
        self.lock_newest(LockTupleMode::LockTupleExclusive, wait, see)
    }

    /// The same against transactions that change it: one that only refers to the row is not in the way.
    pub(crate) fn newest_to_update<T>(&self, wait: Wait, see: impl FnOnce(&Row) -> T) -> Option<T> {
        self.lock_newest(LockTupleMode::LockTupleNoKeyExclusive, wait, see).ok()
    }

    fn lock_newest<T>(
        &self,
        mode: LockTupleMode::Type,
        wait: Wait,
        see: impl FnOnce(&Row) -> T,
    ) -> Result<T, Change> {
        self.scan.check_access();
        refuse_if_read_only();
        let slot = self.scratch();
        // SAFETY: the slot is one of the table's.
        match unsafe { self.lock(mode, wait, Version::Newest, slot) } {
            Change::Done => Ok(see(&Row { scan: self.scan, slot })),
            in_the_way => Err(in_the_way),
        }
    }

    /// Locks the row as a statement of that strength does, in its newest version; `None` where [`Row::newest`] gives an error.
    /// Where transactions are not to see what is changed beside them, a row that has been changed or removed since the look
    /// ends the call with a serialization failure.
    pub(crate) fn locked<T>(
        &self,
        strength: LockStrength,
        wait: Wait,
        see: impl FnOnce(&Row) -> T,
    ) -> Option<T> {
        self.scan.check_access();
        refuse_if_read_only();
        let isolated = !session::is_read_committed();
        let version = if isolated { Version::This } else { Version::Newest };
        let slot = self.scratch();
        // SAFETY: the slot is one of the table's.
        match unsafe { self.lock(strength.mode(), wait, version, slot) } {
            Change::Done => Some(see(&Row { scan: self.scan, slot })),
            Change::Newer | Change::Gone if isolated => throw::serialization_failure(),
            Change::Newer | Change::Gone | Change::Busy => None,
        }
    }

    /// # Safety
    /// `slot` is one of the table's that has no row which is needed.
    unsafe fn lock(
        &self,
        mode: LockTupleMode::Type,
        wait: Wait,
        version: Version,
        slot: *mut pg_sys::TupleTableSlot,
    ) -> Change {
        let relation = self.scan.table;
        // SAFETY: as in [`Row::update`].
        unsafe {
            let Some(lock) = routine(relation).tuple_lock else { pgrx::error!("no locks") };
            let mut place = self.place();
            let mut failure = pg_sys::TM_FailureData::default();
            let policy = match wait {
                Wait::No => LockWaitPolicy::LockWaitSkip,
                Wait::Yes => LockWaitPolicy::LockWaitBlock,
            };
            // If a transaction is writing a newer version, and its lock does not conflict with ours, the
            // newer version is locked as well.
            let along = pg_sys::TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS;
            let flags = match version {
                Version::This => along,
                Version::Newest => along | pg_sys::TUPLE_LOCK_FLAG_FIND_LAST_VERSION,
            };
            let command = pg_sys::GetCurrentCommandId(true);
            let snapshot = self.scan.look.snapshot();
            Change::of(pg_guard_ffi_boundary(|| {
                lock(relation, &mut place, snapshot, slot, command, mode, policy, flags as u8, &mut failure)
            }))
        }
    }

    /// A slot for another version of the row.
    fn scratch(&self) -> *mut pg_sys::TupleTableSlot {
        slot_in(&self.scan.newer, || self.scan.new_slot())
    }

    /// This version of the row with other values.
    ///
    /// # Safety
    /// The slot that is returned points into this one.
    unsafe fn version(&self, values: &[Set]) -> *mut pg_sys::TupleTableSlot {
        // SAFETY: both slots have the shape of the table, so many columns as `natts` says.
        unsafe {
            let descriptor = (*self.slot).tts_tupleDescriptor;
            let columns = (*descriptor).natts as usize;
            let slot = slot_in(&self.scan.changed, || virtual_slot(descriptor));
            steps::clear(&[slot]);
            if ((*self.slot).tts_nvalid as usize) < columns {
                pg_sys::slot_getsomeattrs_int(self.slot, columns as i32);
            }
            std::ptr::copy_nonoverlapping((*self.slot).tts_values, (*slot).tts_values, columns);
            std::ptr::copy_nonoverlapping((*self.slot).tts_isnull, (*slot).tts_isnull, columns);
            fill(slot, values);
            pg_sys::ExecStoreVirtualTuple(slot);
            slot
        }
    }
}

fn slot_in(
    cell: &Cell<*mut pg_sys::TupleTableSlot>,
    make: impl FnOnce() -> *mut pg_sys::TupleTableSlot,
) -> *mut pg_sys::TupleTableSlot {
    if cell.get().is_null() {
        cell.set(make());
    }
    cell.get()
}

/// # Safety
/// The descriptor is there as long as the slot is.
pub(super) unsafe fn virtual_slot(descriptor: pg_sys::TupleDesc) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: as the caller says; the callbacks are a constant of the server's.
    unsafe { pg_sys::MakeSingleTupleTableSlot(descriptor, &pg_sys::TTSOpsVirtual) }
}

/// Puts values into a slot, each of its column's type, and a NULL only where one may be.
///
/// # Safety
/// `slot` is a virtual one.
pub(super) unsafe fn fill(slot: *mut pg_sys::TupleTableSlot, values: &[Set]) {
    // SAFETY: the slot has room for as many values as its descriptor has columns: asserted.
    unsafe {
        let descriptor = (*slot).tts_tupleDescriptor;
        for Set { number, value } in values {
            let at = usize::from(number.unsigned_abs()) - 1;
            assert!(at < (*descriptor).natts as usize, "a table has fewer than {number} columns");
            let column = attribute(descriptor, at);
            match value.datum {
                Some(datum) => {
                    assert!(column.atttypid == value.type_oid(), "type of column {number}");
                    *(*slot).tts_values.add(at) = datum;
                    *(*slot).tts_isnull.add(at) = false;
                }
                None => {
                    assert!(!column.attnotnull, "column {number} may not be NULL");
                    *(*slot).tts_isnull.add(at) = true;
                }
            }
        }
    }
}

/// Refuses as a statement that writes would.
pub(super) fn refuse_if_read_only() {
    session::refuse_if_read_only();
    // SAFETY: reads variables, and raises errors.
    unsafe { pg_sys::PreventCommandIfParallelMode(session::CHANGE.as_ptr()) }
}

impl Scan<'_> {
    fn check_access(&self) {
        self.level.check();
        assert!(self.access == Access::Change, "a table that was opened to be read is changed");
    }
}
