//! Results of set-returning functions, handed over all at once.
//!
//! pgrx's iterators are called for one row at a time, and with each call Postgres applies the `SET` clauses and the
//! owner's rights of the function anew. A tuplestore is filled in one call ("materialize mode").

use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::Datum;
use pgrx::memcxt::PgMemoryContexts;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, Returns, ReturnsError, SqlMapping, SqlTranslatable,
};
use pgrx::{IntoDatum, pg_sys};

use super::arg::Arg;
use super::descriptor::attribute;

/// One row: its columns in order.
pub(crate) trait Columns {
    /// Turns the columns into datums, in the current memory context.
    fn datums(self) -> Vec<Arg>;
}

macro_rules! columns {
    ($($name:ident)+) => {
        impl<$($name: IntoDatum),+> Columns for ($($name,)+) {
            #[allow(nonstandard_style)]
            fn datums(self) -> Vec<Arg> {
                let ($($name,)+) = self;
                vec![$(Arg::new($name)),+]
            }
        }
    };
}

columns!(A);
columns!(A B);
columns!(A B C);
columns!(A B C D);
columns!(A B C D E);
columns!(A B C D E F G H I J K);

/// What a function returns that is declared as `RETURNS TABLE` or `RETURNS SETOF` (then with one column).
pub(crate) struct Rows<T>(pub(crate) Vec<T>);

/// Rows of one column.
impl<T> FromIterator<T> for Rows<(T,)> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Rows(values.into_iter().map(|value| (value,)).collect())
    }
}

// SAFETY: the SQL of the functions is written by hand; nothing is derived from this.
unsafe impl<T: 'static> SqlTranslatable for Rows<T> {
    fn argument_sql() -> Result<SqlMapping, ArgumentError> {
        Err(ArgumentError::Table)
    }

    fn return_sql() -> Result<Returns, ReturnsError> {
        Ok(Returns::SetOf(SqlMapping::literal("record")))
    }
}

// SAFETY: returns a NULL datum and what Postgres looks at instead, as in any function in materialize mode.
unsafe impl<T: Columns> BoxRet for Rows<T> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: Postgres calls a set-returning function with a ReturnSetInfo. Its caller (a scan of a function or
        // a list of results) accepts a tuplestore and says what rows it expects. Store and descriptor live as long
        // as the query, which is all that is required of them.
        unsafe {
            let info = (*fcinfo.as_mut_ptr()).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            if info.is_null()
                || (*info).type_ != pg_sys::NodeTag::T_ReturnSetInfo
                || (*info).allowedModes & pg_sys::SetFunctionReturnMode::SFRM_Materialize as i32 == 0
                || (*info).expectedDesc.is_null()
            {
                super::throw::throw(
                    "0A000",
                    "a function that returns rows was called where none are accepted",
                    "",
                    "Call it in the FROM clause, or as SELECT.",
                );
            }
            let of_query = (*(*info).econtext).ecxt_per_query_memory;
            let (store, descriptor) = PgMemoryContexts::For(of_query).switch_to(|_| {
                let random =
                    (*info).allowedModes & pg_sys::SetFunctionReturnMode::SFRM_Materialize_Random as i32;
                (
                    pg_sys::tuplestore_begin_heap(random != 0, false, pg_sys::work_mem),
                    pg_sys::CreateTupleDescCopy((*info).expectedDesc),
                )
            });
            // A domain is stored as the type that it is made of.
            let expects = |at: usize, given: pg_sys::Oid| {
                let expected = attribute(descriptor, at).atttypid;
                expected == given || pg_sys::getBaseType(expected) == given
            };
            let columns = (*descriptor).natts as usize;
            // One row's worth of datums at a time: bodies may be large.
            let mut of_row = PgMemoryContexts::new("taskq row");
            for row in self.0 {
                let row = of_row.switch_to(|_| row.datums());
                let is_expected = row.iter().enumerate().all(|(at, column)| expects(at, column.type_oid()));
                assert!(row.len() == columns && is_expected, "types of a result's columns");
                let mut values: Vec<pg_sys::Datum> =
                    row.iter().map(|c| c.datum.unwrap_or(0.into())).collect();
                let mut nulls: Vec<bool> = row.iter().map(|c| c.datum.is_none()).collect();
                pg_sys::tuplestore_putvalues(store, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
                of_row.reset();
            }
            (*info).returnMode = pg_sys::SetFunctionReturnMode::SFRM_Materialize;
            (*info).setResult = store;
            (*info).setDesc = descriptor;
        }
        fcinfo.return_null()
    }
}
