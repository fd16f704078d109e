//! The columns of a result, as types.
//!
//! The types are compared once per result that has rows. A column that may be NULL is an `Option`; any other that is NULL
//! raises an error.

use std::marker::PhantomData;

use pgrx::datum::{Interval, Uuid};
use pgrx::{FromDatum, IntoDatum, pg_sys};

use crate::pg::clock::{Time, Wall};
use crate::pg::json::JsonText;

/// What a column can be read as: types that own what they have, so that nothing points into a result that has gone.
pub(crate) trait Column: FromDatum + IntoDatum {}

/// The names and types of a result's columns.
#[derive(Clone, Copy)]
pub(crate) struct Header(pub(super) pg_sys::TupleDesc);

impl Header {
    /// # Panics
    /// If column `n`, counted from 1, cannot be read as a `T`.
    fn check<T: Column>(self, n: i32) {
        // SAFETY: made by `Statement::run`, which has the result in memory. Of a column that is not there Postgres says
        // no type.
        let oid = unsafe { pg_sys::SPI_gettypeid(self.0, n) };
        assert!(T::is_compatible_with(oid), "column {n} has type {oid:?}");
    }
}

/// A row of a result, valid while its statement's result is being mapped.
#[derive(Clone, Copy)]
pub(super) struct Row<'r> {
    /// The row itself, in the memory of the SPI frame.
    pub(super) tuple: pg_sys::HeapTuple,
    /// The names and types of its columns.
    pub(super) tupdesc: pg_sys::TupleDesc,
    /// Keeps it from outliving the result.
    pub(super) _result: PhantomData<&'r ()>,
}

/// A row of a result whose types have been compared with those that are read.
#[derive(Clone, Copy)]
pub(crate) struct Checked<'r>(pub(super) Row<'r>);

impl Checked<'_> {
    /// Column `n`, counted from 1; `None` for NULL.
    fn get<T: Column>(self, n: i32) -> Option<T> {
        // SAFETY: a `Checked` exists only while `Statement::run` has the result in memory, after `FromRow::check`,
        // which has compared the same columns with the same types. By-reference values are copied by `from_datum`,
        // since a `Column` owns what it has.
        unsafe {
            let mut null = false;
            let datum = pg_sys::SPI_getbinval(self.0.tuple, self.0.tupdesc, n, &mut null);
            T::from_datum(datum, null)
        }
    }

    /// Column `n`, which the statement never returns as NULL.
    fn need<T: Column>(self, n: i32) -> T {
        match self.get(n) {
            Some(value) => value,
            None => pgrx::error!("column {n} of an internal statement is NULL"),
        }
    }
}

/// What a row can be read as: a column, a record, or a tuple of such.
pub(crate) trait FromRow: Sized {
    /// How many columns it takes.
    const COLUMNS: i32;

    /// Raises an error unless the columns from `at` on (the first is 1) have the types that are read.
    fn check(result: Header, at: i32);

    /// What the columns from `at` on have.
    fn read(row: Checked, at: i32) -> Self;
}

/// Something with names that is read as other columns are, in their order. See [`record`](super::record).
pub(crate) trait Record {
    /// The columns, of which it is made.
    type Columns: FromRow;

    fn of(columns: Self::Columns) -> Self;
}

impl<T: Record> FromRow for T {
    const COLUMNS: i32 = T::Columns::COLUMNS;

    fn check(result: Header, at: i32) {
        T::Columns::check(result, at);
    }

    fn read(row: Checked, at: i32) -> Self {
        T::of(T::Columns::read(row, at))
    }
}

impl<T: Column> FromRow for Option<T> {
    const COLUMNS: i32 = 1;

    fn check(result: Header, at: i32) {
        result.check::<T>(at);
    }

    fn read(row: Checked, at: i32) -> Self {
        row.get(at)
    }
}

macro_rules! columns {
    ($($type:ty),* $(,)?) => {
        $(
            impl Column for $type {}
            impl FromRow for $type {
                const COLUMNS: i32 = 1;

                fn check(result: Header, at: i32) {
                    result.check::<$type>(at);
                }

                fn read(row: Checked, at: i32) -> Self {
                    row.need(at)
                }
            }
        )*
    };
}
columns!(
    i8,
    i16,
    i32,
    i64,
    f64,
    bool,
    String,
    Time,
    Wall,
    JsonText,
    Interval,
    Uuid,
    pg_sys::Oid,
    pg_sys::ItemPointerData
);

impl<T: Column> Column for Vec<T> where Vec<T>: FromDatum + IntoDatum {}
impl<T: Column> Column for Vec<Option<T>> where Vec<Option<T>>: FromDatum + IntoDatum {}

/// An array, with NULLs among its elements or without.
impl<T> FromRow for Vec<T>
where
    Vec<T>: Column,
{
    const COLUMNS: i32 = 1;

    fn check(result: Header, at: i32) {
        result.check::<Self>(at);
    }

    fn read(row: Checked, at: i32) -> Self {
        row.need(at)
    }
}

impl FromRow for () {
    const COLUMNS: i32 = 0;

    fn check(_: Header, _: i32) {}

    fn read(_: Checked, _: i32) -> Self {}
}

macro_rules! several {
    ($($type:ident),+) => {
        impl<$($type: FromRow),+> FromRow for ($($type,)+) {
            const COLUMNS: i32 = 0 $(+ $type::COLUMNS)+;

            #[allow(unused_assignments)] // the last
            fn check(result: Header, mut at: i32) {
                $($type::check(result, at); at += $type::COLUMNS;)+
            }

            #[allow(unused_assignments)] // the last
            fn read(row: Checked, mut at: i32) -> Self {
                ($({ let value = $type::read(row, at); at += $type::COLUMNS; value },)+)
            }
        }
    };
}
/// For two columns and more, up to all that are listed.
macro_rules! up_to {
    ([$($done:ident),+]) => { several!($($done),+); };
    ([$($done:ident),+] $next:ident $(, $rest:ident)*) => {
        several!($($done),+);
        up_to!([$($done),+, $next] $($rest),*);
    };
}
up_to!([A1, A2] A3, A4, A5, A6, A7, A8, A9, A10, A11, A12, A13, A14, A15, A16, A17, A18, A19, A20, A21, A22, A23, A24);
