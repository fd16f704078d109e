//! The queue's sequences.

use pgrx::{FromDatum, IntoDatum, direct_function_call, pg_sys};

use super::named::Named;

/// The last value that was taken, or one less than the first if none was. Reads the sequence as a query would: under the
/// lock of a reader, which goes with the subtransaction. (What Postgres' own functions take stays until the transaction
/// ends, and a call that sleeps is not to have it.)
pub(crate) fn last_value(sequence: &Named) -> i64 {
    // SAFETY: the sequence is opened and closed here, and so is the scan of its one row, which every snapshot shows. The
    // row is (last_value bigint, log_cnt bigint, is_called boolean), for which there is room; values are copied.
    unsafe {
        let relation = pg_sys::relation_open(sequence.oid(), pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        assert!(
            (*(*relation).rd_rel).relkind as u8 == pg_sys::RELKIND_SEQUENCE
                && (*(*relation).rd_att).natts == 3
        );
        let mut any =
            pg_sys::SnapshotData { snapshot_type: pg_sys::SnapshotType::SNAPSHOT_ANY, ..Default::default() };
        let scan = pg_sys::systable_beginscan(
            relation,
            pg_sys::InvalidOid,
            false,
            &mut any,
            0,
            std::ptr::null_mut(),
        );
        let row = pg_sys::systable_getnext(scan);
        if row.is_null() {
            pgrx::error!("sequence {sequence} is empty");
        }
        let mut values = [pg_sys::Datum::from(0usize); 3];
        let mut nulls = [true; 3];
        pg_sys::heap_deform_tuple(row, (*relation).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
        let last = i64::from_datum(values[0], nulls[0]).unwrap_or_default();
        let called = bool::from_datum(values[2], nulls[2]).unwrap_or_default();
        pg_sys::systable_endscan(scan);
        pg_sys::relation_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        last - i64::from(!called)
    }
}

/// Its file: another one after RESTART.
pub(crate) fn file_of(sequence: &Named) -> pg_sys::Oid {
    // SAFETY: a function that takes a relation's OID.
    unsafe {
        direct_function_call::<pg_sys::Oid>(pg_sys::pg_relation_filenode, &[sequence.oid().into_datum()])
    }
    .unwrap_or(pg_sys::InvalidOid)
}

/// The next value.
pub(crate) fn next(sequence: &Named) -> i64 {
    // SAFETY: a function that takes a sequence's OID.
    unsafe { direct_function_call::<i64>(pg_sys::nextval_oid, &[sequence.oid().into_datum()]) }
        .unwrap_or_else(|| pgrx::error!("sequence {sequence} gives nothing"))
}
