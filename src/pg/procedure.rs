//! What a C procedure needs that a function does not: to end its caller's transaction, and to return its
//! INOUT argument as a row.

use pgrx::{FromDatum, IntoDatum, pg_sys};

use super::throw::throw;

/// The arguments of a procedure that is being called, and its one INOUT result.
pub(crate) struct Call {
    fcinfo: pg_sys::FunctionCallInfo,
}

impl Call {
    /// # Safety
    /// `fcinfo` must be what Postgres passed to the procedure that is running.
    pub(crate) unsafe fn new(fcinfo: pg_sys::FunctionCallInfo) -> Self {
        Call { fcinfo }
    }

    /// Argument `n`, counted from 0; `None` for NULL.
    pub(crate) fn argument<T: FromDatum>(&self, n: usize) -> Option<T> {
        // SAFETY: the SQL surface declares as many arguments as are read here, with these types.
        unsafe {
            let argument = (*self.fcinfo).args.as_slice((*self.fcinfo).nargs as usize)[n];
            T::from_datum(argument.value, argument.isnull)
        }
    }

    /// Ends the caller's transaction and begins a new one, which holds no snapshot: what it was called in
    /// is committed. Refuses inside a transaction block, where that cannot be.
    pub(crate) fn leave_transaction(&self, what: &str) {
        // SAFETY: a CALL passes a CallContext; anything else means that we cannot commit.
        let atomic = unsafe {
            let context = (*self.fcinfo).context.cast::<pg_sys::CallContext>();
            context.is_null()
                || (*context.cast::<pg_sys::Node>()).type_ != pg_sys::NodeTag::T_CallContext
                || (*context).atomic
        };
        if atomic {
            throw(
                "2D000",
                &format!("{what} cannot run inside a transaction block"),
                "It ends its transaction, so as to hold no snapshot while it sleeps.",
                "Call it outside a transaction block (with autocommit on), or use wait_for_task or own_tasks(wait =>) there.",
            );
        }
        // SAFETY: the context is not atomic, so that a non-atomic SPI frame may commit. The frame is closed
        // again at once; arguments live in the portal's memory, which outlives the transaction.
        unsafe {
            pg_sys::SPI_connect_ext(pg_sys::SPI_OPT_NONATOMIC as i32);
            pg_sys::SPI_commit();
            #[cfg(feature = "pg14")]
            pg_sys::SPI_start_transaction();
            pg_sys::SPI_finish();
            // A snapshot of READ COMMITTED goes with its statement; one of a higher level would stay for
            // the whole transaction. No statement has run in the new one yet.
            pg_sys::XactIsoLevel = pg_sys::XACT_READ_COMMITTED as i32;
        }
    }

    /// The row that carries the INOUT result back.
    pub(crate) fn result<T: IntoDatum>(&self, value: T) -> pg_sys::Datum {
        let datum = value.into_datum();
        // SAFETY: the procedure is declared with one INOUT argument of this type; the row is made in the
        // memory of the call.
        unsafe {
            let mut tupdesc = std::ptr::null_mut();
            pg_sys::get_call_result_type(self.fcinfo, std::ptr::null_mut(), &mut tupdesc);
            let tupdesc = pg_sys::BlessTupleDesc(tupdesc);
            let mut values = [datum.unwrap_or(pg_sys::Datum::from(0usize))];
            let mut nulls = [datum.is_none()];
            let tuple = pg_sys::heap_form_tuple(tupdesc, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data)
        }
    }
}
