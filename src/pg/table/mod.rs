//! The queue's own tables, row by row: found by index, changed where they lie, without a statement.
//!
//! A statement that is planned once still has to be started and ended, and that is four fifths of what a call for a
//! single task costs. Here a row is found by a descent into an index, and changed, inserted or removed by the entry points
//! of the table access method: the same that statements end in, with the same locks, snapshots and records.
//!
//! **What statements did besides is done here.** A [`Look`] takes a snapshot that sees what this transaction has written
//! so far. A change is refused where the transaction is read-only. A new version of a row that is not heap-only gets its
//! index entries, partial indexes by their conditions. A value is compared with its column's type, and a NULL with its
//! constraint. CHECK constraints, triggers and rights are *not* checked: the tables are the queue's own, what is written
//! comes from its code, and the rights of the caller were checked before.
//!
//! **A result that is not "done" is a value** ([`Change`]), never an error: another transaction has the row, or has
//! changed it.
//!
//! **Nothing outlives what it needs.** Snapshot, tables and scans exist inside the closures that use them. If a
//! subtransaction is rolled back in there, what was begun in it is taken away; so each use asks whether it is at the
//! same level as where its object was made.

mod change;
mod columns;
mod each;
mod indexes;
mod insert;
mod places;
mod scan;
mod steps;

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use pgrx::pg_sys;

use super::named::{NAMES, Named};
use super::{fit, quiet, session};

pub(crate) use change::{Change, LockStrength, Wait};
pub(crate) use columns::{Column, Set, table};
pub(crate) use each::Number;
pub(crate) use indexes::{Has, Partial};
pub(crate) use insert::{insert, insert_unless_there};
pub(crate) use places::Places;
pub(crate) use scan::{Key, Row, Scan};

/// A table of the queue's schema.
pub(crate) struct Table {
    name: Named,
    /// Those of its partial indexes that many a row does not belong into.
    partial: &'static [Partial],
}

impl Table {
    pub(crate) const fn new(name: &'static CStr, partial: &'static [Partial]) -> Self {
        Table { name: Named::new(name), partial }
    }

    pub(super) fn oid(&self) -> pg_sys::Oid {
        self.name.oid()
    }
}

/// An index of such a table.
pub(crate) struct Index {
    table: &'static Table,
    name: Named,
    /// Many a queue never has a row in the table: it is asked whether it has pages before the index is looked into.
    mostly_empty: bool,
}

impl Index {
    pub(crate) const fn new(table: &'static Table, name: &'static CStr) -> Self {
        Index { table, name: Named::new(name), mostly_empty: false }
    }

    /// The same for a table in which many a queue never has a row.
    pub(crate) const fn of_mostly_empty(table: &'static Table, name: &'static CStr) -> Self {
        Index { table, name: Named::new(name), mostly_empty: true }
    }
}

/// A snapshot to look with: all that was committed when it was taken, whatever the level of isolation, and all that this
/// transaction has written before.
///
/// **A table that may have been rewritten since** is read with a newer one. To a snapshot that is older than the commit of an
/// ALTER TABLE all rows that it has written are new, and the table would seem to be empty. A statement locks its tables before
/// it takes its snapshot. A look does not know from the start which tables it will open; so each table is seen as a statement
/// that begins with its lock would see it. A transaction that rewrites a table changes its row in the catalog. It sends the
/// invalidation message of that at its commit: after new snapshots see it, and before it releases its lock. So if the snapshot
/// is older than that commit, the message has come since, with our lock at the latest.
pub(crate) struct Look {
    snapshot: Cell<pg_sys::Snapshot>,
    /// What had been heard of changes of the catalog before the snapshot was taken.
    as_of: Cell<u64>,
    /// Scans that were begun with these keep them.
    older: RefCell<Vec<pg_sys::Snapshot>>,
    level: Level,
    pages: Cell<u64>,
}

/// Takes a snapshot and looks with it.
pub(crate) fn look<R>(work: impl FnOnce(&Look) -> R) -> R {
    // SAFETY: we are in a transaction. The snapshot is registered as long as `work` runs; if that ends in an error, the
    // resource owner of the (sub)transaction that is rolled back for it lets it go.
    unsafe {
        let as_of = Cell::new(NAMES.version());
        let look = Look {
            snapshot: Cell::new(steps::snapshot()),
            as_of,
            older: RefCell::default(),
            level: Level::here(),
            pages: Cell::new(0),
        };
        let result = work(&look);
        pg_sys::UnregisterSnapshot(look.snapshot.get());
        look.older.take().into_iter().for_each(|snapshot| pg_sys::UnregisterSnapshot(snapshot));
        result
    }
}

impl Look {
    /// How many pages of tables and indexes it has read so far.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.get()
    }

    /// Does what reads pages, and counts them.
    fn counted<R>(&self, read: impl FnOnce() -> R) -> R {
        let before = session::pages_read();
        let result = read();
        self.pages.set(self.pages.get() + session::pages_read() - before);
        result
    }

    /// Every transaction before this one had ended, and what it committed is seen in the table that was opened last.
    pub(crate) fn xmin(&self) -> u64 {
        // SAFETY: the snapshot is registered while this is there.
        session::with_epoch(unsafe { (*self.snapshot()).xmin })
    }

    /// The same of every transaction but the own one.
    pub(crate) fn xmin_of_others(&self) -> u64 {
        // SAFETY: the snapshot is registered while this is there, and so is its array. That has the ids of all transactions
        // that were running, without the own one.
        let (running, end) = unsafe {
            let snapshot = &*self.snapshot();
            let running = match snapshot.xcnt {
                0 => &[],
                count => std::slice::from_raw_parts(snapshot.xip, count as usize),
            };
            (running, snapshot.xmax)
        };
        let lowest = running.iter().map(|xid| session::with_epoch(*xid)).min();
        // A snapshot ends behind the last id that has ended: what comes there is our own id as long as no other
        // transaction ends.
        lowest.unwrap_or_else(|| session::first_not_own(session::with_epoch(end)))
    }

    /// Registered while this is there.
    fn snapshot(&self) -> pg_sys::Snapshot {
        self.snapshot.get()
    }

    /// Opens a table to look into it.
    ///
    /// # Safety
    /// As for [`open`].
    unsafe fn open(&self, table: &Table, lock: u32) -> pg_sys::Relation {
        // SAFETY: as the caller says. The snapshot goes with the others.
        unsafe {
            let relation = open(table, lock);
            let heard = NAMES.version();
            if self.as_of.replace(heard) != heard {
                self.older.borrow_mut().push(self.snapshot.replace(steps::snapshot()));
            }
            relation
        }
    }
}

/// The subtransaction in which something was made: it goes with that.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Level(pg_sys::SubTransactionId);

impl Level {
    fn here() -> Self {
        Level(quiet::subtransaction())
    }

    fn check(self) {
        assert!(
            self == Level::here(),
            "a scan was used in another subtransaction than the one it was begun in"
        );
    }
}

/// Opens a table, with a lock that stays until the transaction ends, as that of any reader or writer does.
///
/// # Safety
/// To be called in a transaction. What is returned is valid until it is closed, or the subtransaction is rolled back.
unsafe fn open(table: &Table, lock: u32) -> pg_sys::Relation {
    // SAFETY: as said. Only an ordinary table with the access method of heaps passes.
    unsafe {
        let relation = steps::open(table.name.oid(), lock);
        // Once more: a transaction that has changed the table had it locked, and its invalidation message
        // came with the lock.
        fit::check();
        if (*(*relation).rd_rel).relkind as u8 != pg_sys::RELKIND_RELATION
            || (*relation).rd_tableam != quiet::heap_routine()
        {
            pgrx::error!("{} is not an ordinary table", table.name);
        }
        relation
    }
}

/// The entry point of a table access method.
///
/// # Safety
/// `relation` is open and has a table access method.
unsafe fn routine(relation: pg_sys::Relation) -> &'static pg_sys::TableAmRoutine {
    // SAFETY: the routines of an access method are constants of the server or of a library that stays loaded.
    unsafe { &*(*relation).rd_tableam }
}

/// Locks a table as a reader does, until the transaction ends. Waits for a session that has it exclusively or waits for that.
pub(crate) fn hold(table: &Table) {
    // SAFETY: opened and closed here; the lock stays.
    unsafe {
        let relation = open(table, pg_sys::AccessShareLock);
        pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
    }
}

/// How many pages a table has.
pub(crate) fn pages_of(table: &Table) -> u32 {
    // SAFETY: opened and closed here.
    unsafe {
        let relation = open(table, pg_sys::AccessShareLock);
        let pages = steps::pages(relation);
        pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        pages
    }
}

/// The file of a table: another one after TRUNCATE, CLUSTER or VACUUM FULL.
pub(crate) fn file_of(table: &Table) -> pg_sys::Oid {
    // SAFETY: opened and closed here; a field of what is open is read.
    unsafe {
        let relation = open(table, pg_sys::AccessShareLock);
        let file = file_number(relation);
        pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        file
    }
}

/// # Safety
/// `relation` is open.
unsafe fn file_number(relation: pg_sys::Relation) -> pg_sys::Oid {
    // SAFETY: as the caller says.
    unsafe {
        #[cfg(any(feature = "pg14", feature = "pg15"))]
        return (*relation).rd_node.relNode;
        #[cfg(not(any(feature = "pg14", feature = "pg15")))]
        return (*relation).rd_locator.relNumber;
    }
}
