//! Reading rows with what open transactions have in hand: what they have inserted is there, too, and what will be gone
//! if they commit is marked.

use std::ffi::CStr;

use pgrx::{FromDatum, IntoDatum, pg_sys};

use super::quiet;

/// A table with an index on a bigint, its first column.
pub(crate) struct Table {
    /// The schema that the table is in.
    pub(crate) schema: &'static CStr,
    /// The name of the table.
    pub(crate) name: &'static CStr,
    /// The name of the index, in the same schema.
    pub(crate) index: &'static CStr,
}

impl Table {
    /// Calls `see` for each row that has one of the keys, in no certain order, with the key and the integers in these
    /// columns (counted from 1; none may be NULL in any row). It sees
    ///
    /// - what is committed, whatever the snapshot in use shows, and what this transaction has written;
    /// - what other open transactions have inserted, or made of a row by an update;
    /// - of a row that another open transaction has updated the version before it, too, with `doomed`; and rows that such a
    ///   transaction has deleted, with `doomed`.
    ///
    /// What was there when the call began, and still is, is seen; what comes in meanwhile may be. A row whose update begins
    /// *and* commits meanwhile may not be: where the new version does not stay on its page (no HOT), its entry may come to
    /// lie where the scan has been already, and the old version is dead by then. A caller that needs every row has to make
    /// sure that a later look follows such an update. The call takes no locks but a reader's on table and index, and waits
    /// for no transaction that holds a row.
    pub(crate) fn each<const N: usize>(
        &self,
        keys: impl Iterator<Item = i64>,
        columns: [usize; N],
        mut see: impl FnMut(i64, [i32; N], bool),
    ) {
        // SAFETY: table and index are opened and closed here, under the lock of a reader. The scan keys are as many as are
        // announced, and live as long as the scan. A dirty snapshot is a structure that needs no more than its type (it is
        // registered nowhere); the visibility check says in it which transaction is changing what it returns. A tuple is read
        // before the next one is asked for, and its values, integers all, are copied. `heap_deform_tuple` fills as many values as
        // the table has columns, added columns included, and there is room for so many. An error in between closes everything
        // with the (sub)transaction.
        unsafe {
            let namespace = pg_sys::get_namespace_oid(self.schema.as_ptr(), false);
            let relation = pg_sys::table_open(
                pg_sys::get_relname_relid(self.name.as_ptr(), namespace),
                pg_sys::AccessShareLock as pg_sys::LOCKMODE,
            );
            let index = pg_sys::get_relname_relid(self.index.as_ptr(), namespace);
            let width = (*(*relation).rd_att).natts as usize;
            assert!(columns.iter().all(|n| (1..=width).contains(n)));
            let mut values = vec![pg_sys::Datum::from(0usize); width];
            let mut nulls = vec![true; width];
            // Most of the time there is nothing at all.
            let blocks = pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM);
            for key in keys.filter(|_| blocks > 0) {
                let mut dirty = pg_sys::SnapshotData {
                    snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
                    ..Default::default()
                };
                // The scan keeps it, and writes through it: from here on it is this pointer's alone.
                let dirty = &raw mut dirty;
                let mut condition = quiet::scan_key(
                    1,
                    pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
                    pg_sys::F_INT8EQ,
                    key.into_datum().unwrap_or(pg_sys::Datum::from(0usize)),
                );
                let scan = pg_sys::systable_beginscan(relation, index, true, dirty, 1, &mut condition);
                loop {
                    let tuple = pg_sys::systable_getnext(scan);
                    if tuple.is_null() {
                        break;
                    }
                    let doomed = (*dirty).xmax != pg_sys::InvalidTransactionId;
                    pg_sys::heap_deform_tuple(
                        tuple,
                        (*relation).rd_att,
                        values.as_mut_ptr(),
                        nulls.as_mut_ptr(),
                    );
                    let value = |n: usize| i32::from_datum(values[n - 1], nulls[n - 1]).unwrap_or_default();
                    see(key, columns.map(value), doomed);
                }
                pg_sys::systable_endscan(scan);
            }
            // The lock stays, as a reader's does.
            pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        }
    }
}
