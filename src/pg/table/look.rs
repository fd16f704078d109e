//! Looking into tables with one snapshot.

use std::cell::{Cell, RefCell};

use pgrx::pg_sys;

use super::declared::Table;
use super::open::open;
use super::steps;
use crate::pg::changes::NAMES;
use crate::pg::{quiet, session};

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
    /// The subtransaction in which it was begun, and in which alone it is used.
    pub(super) level: Level,
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
    /// How many pages of tables and indexes its walks have read so far.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.get()
    }

    /// Does what reads pages, and counts them.
    pub(super) fn counted<R>(&self, read: impl FnOnce() -> R) -> R {
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
        // SAFETY: the snapshot is registered while this is there, and so is its array. That has the ids of the transactions
        // that were running, without the own one, and without those that are not below the end of the snapshot.
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
    pub(super) fn snapshot(&self) -> pg_sys::Snapshot {
        self.snapshot.get()
    }

    /// Opens a table to look into it.
    ///
    /// # Safety
    /// As for [`open`].
    pub(super) unsafe fn open(&self, table: &Table, lock: u32) -> pg_sys::Relation {
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
pub(super) struct Level(pg_sys::SubTransactionId);

impl Level {
    /// The subtransaction that is under way.
    pub(super) fn here() -> Self {
        Level(quiet::subtransaction())
    }

    /// Panics where another subtransaction is under way than this one.
    pub(super) fn check(self) {
        assert!(
            self == Level::here(),
            "a scan was used in another subtransaction than the one it was begun in"
        );
    }
}
