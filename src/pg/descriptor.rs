//! The columns of a row's description.

use pgrx::pg_sys;

/// # Safety
/// The descriptor has a column at this place, counted from 0, and stays as long as what is returned is used.
pub(super) unsafe fn attribute<'d>(
    descriptor: pg_sys::TupleDesc,
    at: usize,
) -> &'d pg_sys::FormData_pg_attribute {
    // SAFETY: as the caller says. Since PostgreSQL 18 the columns come behind as many compact ones.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        let first = (*descriptor).attrs.as_ptr();
        #[cfg(feature = "pg18")]
        let first = (*descriptor)
            .compact_attrs
            .as_ptr()
            .add((*descriptor).natts as usize)
            .cast::<pg_sys::FormData_pg_attribute>();
        &*first.add(at)
    }
}
