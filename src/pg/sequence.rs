//! The queue's sequences.

use pgrx::{IntoDatum, direct_function_call, pg_sys};

use super::named::Named;

/// The last value that was taken, or one less than the first if none was.
///
/// Read as `nextval` reads it: behind the lock on the page. While `nextval` writes its WAL record the row has a value that is up
/// to 32 ahead, and then again what was taken. A query has let go of the page when it takes the row apart, and may see the value
/// that is ahead. The relation is locked as by a reader, and a rollback of the subtransaction gives that up. (The lock that
/// `nextval` takes stays until the transaction ends, and a call that sleeps must not keep it.)
pub(crate) fn last_value(sequence: &Named) -> i64 {
    // SAFETY: the sequence is opened and closed here, and so is its page, behind a lock that a writer of the page has
    // exclusively; nothing in between raises an error. Every sequence has one page with one row, a
    // FormData_pg_sequence_data without NULLs, from its creation on; its fields are copied. If an error stops a reader
    // in ReadBuffer, all that it holds goes with the (sub)transaction.
    let data = unsafe {
        let relation = pg_sys::relation_open(sequence.oid(), pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        assert!((*(*relation).rd_rel).relkind as u8 == pg_sys::RELKIND_SEQUENCE);
        let buffer = pg_sys::ReadBuffer(relation, 0);
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as std::ffi::c_int);
        let page = pg_sys::BufferGetPage(buffer);
        // PageGetItem and the like have no bindings from PostgreSQL 16 on.
        let line = (*page.cast::<pg_sys::PageHeaderData>()).pd_linp.as_mut_ptr();
        let row = page.add((*line).lp_off() as usize);
        let header = row.cast::<pg_sys::HeapTupleHeaderData>();
        let data = row.add(usize::from((*header).t_hoff)).cast::<SequenceData>().read();
        pg_sys::UnlockReleaseBuffer(buffer);
        pg_sys::relation_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        data
    };
    data.last_value - i64::from(data.is_called == 0)
}

/// `FormData_pg_sequence_data`, of which there are no bindings.
#[repr(C)]
struct SequenceData {
    last_value: i64,
    log_cnt: i64,
    /// A C bool.
    is_called: u8,
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
