//! Opening tables.

use pgrx::pg_sys;

use super::declared::Table;
use super::steps;
use crate::pg::{fit, quiet};

/// Opens a table, with a lock that stays until the transaction ends or the subtransaction is rolled back, as that of
/// any reader or writer does.
///
/// # Safety
/// To be called in a transaction. What is returned is valid until it is closed, or the subtransaction is rolled back.
pub(super) unsafe fn open(table: &Table, lock: u32) -> pg_sys::Relation {
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

/// The entry points of a table access method.
///
/// # Safety
/// `relation` is open and has a table access method.
pub(super) unsafe fn routine(relation: pg_sys::Relation) -> &'static pg_sys::TableAmRoutine {
    // SAFETY: the routines of an access method are constants of the server or of a library that stays loaded.
    unsafe { &*(*relation).rd_tableam }
}

/// Locks a table as a reader does, until the transaction ends or the subtransaction is rolled back. Waits for a session that has
/// it exclusively or waits for that.
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

/// The file of a table: another one after a command that writes it anew, as TRUNCATE, CLUSTER and VACUUM FULL do.
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
