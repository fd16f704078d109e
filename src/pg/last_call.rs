//! Calls of the extension's own functions right before a transaction commits or is prepared.

use std::ffi::CStr;

use pgrx::pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP;
use pgrx::{IntoDatum, direct_function_call, pg_sys};

/// Calls the function with this name in the queue's schema, one that takes no arguments and returns nothing, as the
/// catalog has it. To be used in the events before a commit or a PREPARE TRANSACTION. Does nothing if there is no
/// such function: the transaction may have dropped the extension.
pub(crate) fn call(name: &'static CStr) {
    let Some(function) = function(name) else { return };
    // SAFETY: the transaction is still whole, and a snapshot is pushed for the function. The catalog says that it takes
    // no arguments and returns void. An error aborts the transaction, as it should.
    unsafe {
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        pg_sys::OidFunctionCall0Coll(function, pg_sys::InvalidOid);
        pg_sys::PopActiveSnapshot();
    }
}

fn function(name: &'static CStr) -> Option<pg_sys::Oid> {
    // SAFETY: look-ups in the system caches by keys of their types: a name, the types of no arguments, a schema. The
    // entry is looked at while it is pinned.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"taskq".as_ptr(), true);
        let no_types = direct_function_call::<pg_sys::Datum>(pg_sys::oidvectorin, &[c"".into_datum()])?;
        let entry = pg_sys::SearchSysCache3(
            PROCNAMEARGSNSP as i32,
            pg_sys::Datum::from(name.as_ptr()),
            no_types,
            pg_sys::Datum::from(schema),
        );
        if entry.is_null() {
            return None;
        }
        let row = pg_sys::GETSTRUCT(entry).cast::<pg_sys::FormData_pg_proc>();
        let function = ((*row).prorettype == pg_sys::VOIDOID).then_some((*row).oid);
        pg_sys::ReleaseSysCache(entry);
        function
    }
}
