//! What a C procedure needs that a function does not: to end its caller's transaction, and to return its
//! INOUT argument as a row.

use pgrx::{FromDatum, IntoDatum, pg_sys};

use super::throw::throw;

/// A procedure as Postgres calls it: `procedure!(symbol, pg_finfo_symbol, body)` exports the symbol, which passes
/// its call on to `body(&Call)`, and the record that tells Postgres how to call it.
macro_rules! procedure {
    ($symbol:ident, $info:ident, $body:path) => {
        /// A procedure of the SQL surface.
        #[::pgrx::pg_guard]
        // SAFETY: the prefix `taskq_` is this library's; the compiler sees to it that a name stands once in it.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol(
            fcinfo: ::pgrx::pg_sys::FunctionCallInfo,
        ) -> ::pgrx::pg_sys::Datum {
            // SAFETY: only Postgres calls this, with the information on the call that it makes.
            $body(&unsafe { $crate::pg::procedure::Call::new(fcinfo) })
        }

        /// Tells Postgres by which convention the procedure is called.
        #[doc(hidden)]
        // SAFETY: as above.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $info() -> &'static ::pgrx::pg_sys::Pg_finfo_record {
            const INFO: ::pgrx::pg_sys::Pg_finfo_record = ::pgrx::pg_sys::Pg_finfo_record { api_version: 1 };
            &INFO
        }
    };
}
pub(crate) use procedure;

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
    pub(crate) fn argument<T: FromDatum + IntoDatum>(&self, n: usize) -> Option<T> {
        // SAFETY: Postgres has made as many arguments as it says, and as the slice has. The type of the one that is
        // asked for is compared with what the call was resolved to.
        unsafe {
            let declared = pg_sys::get_fn_expr_argtype((*self.fcinfo).flinfo, n as i32);
            if declared != T::type_oid() {
                pgrx::error!("argument {n} of a procedure has type {declared:?}");
            }
            let argument = (*self.fcinfo).args.as_slice((*self.fcinfo).nargs as usize)[n];
            T::from_datum(argument.value, argument.isnull)
        }
    }

    /// Ends the caller's transaction and begins a new one, which holds no snapshot: what it was called in
    /// is committed. Refuses where a procedure may not commit, as inside a transaction block.
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
        // SAFETY: the context is not atomic. A snapshot of READ COMMITTED goes with its statement; one of a higher level
        // would stay for the whole transaction. No statement has run in the new one yet, which sets the variable when it
        // begins.
        unsafe {
            commit();
            pg_sys::XactIsoLevel = pg_sys::XACT_READ_COMMITTED as i32;
        }
    }

    /// Leaves the caller in a transaction of the isolation level that its settings say. To be called last, and only after
    /// [`Call::leave_transaction`]: the transaction that began there may have another level, and has taken snapshots at it.
    pub(crate) fn leave_as_found(&self) {
        // SAFETY: two variables are read. The context is not atomic, or the call would have been refused.
        unsafe {
            if pg_sys::XactIsoLevel != pg_sys::DefaultXactIsoLevel {
                commit();
            }
        }
    }

    /// The row that carries the INOUT result back.
    pub(crate) fn result<T: IntoDatum>(&self, value: T) -> pg_sys::Datum {
        let datum = value.into_datum();
        // SAFETY: Postgres tells what the call was resolved to. The row is made only if that is one column of the value's
        // type, in the memory of the call.
        unsafe {
            let mut tupdesc: pg_sys::TupleDesc = std::ptr::null_mut();
            let class = pg_sys::get_call_result_type(self.fcinfo, std::ptr::null_mut(), &mut tupdesc);
            let is_row = class == pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE && !tupdesc.is_null();
            if !is_row || (*tupdesc).natts != 1 || column_type(tupdesc) != T::type_oid() {
                pgrx::error!(
                    "the procedure is not declared with one INOUT argument of the type of its result"
                );
            }
            let tupdesc = pg_sys::BlessTupleDesc(tupdesc);
            let mut values = [datum.unwrap_or(pg_sys::Datum::from(0usize))];
            let mut nulls = [datum.is_none()];
            let tuple = pg_sys::heap_form_tuple(tupdesc, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data)
        }
    }
}

/// Commits the transaction of a call, and begins the next.
///
/// # Safety
/// The call's context is not atomic.
unsafe fn commit() {
    // SAFETY: then a non-atomic SPI frame may commit. The frame is closed again at once; arguments live in the portal's
    // memory, which outlives the transaction.
    unsafe {
        pg_sys::SPI_connect_ext(pg_sys::SPI_OPT_NONATOMIC as i32);
        pg_sys::SPI_commit();
        #[cfg(feature = "pg14")]
        pg_sys::SPI_start_transaction();
        pg_sys::SPI_finish();
    }
}

/// The type of the first column.
///
/// # Safety
/// `tupdesc` must be valid, and have one.
unsafe fn column_type(tupdesc: pg_sys::TupleDesc) -> pg_sys::Oid {
    // SAFETY: a function of PostgreSQL for what the caller promises.
    unsafe { pg_sys::SPI_gettypeid(tupdesc, 1) }
}
