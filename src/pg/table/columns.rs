//! Columns of tables, with their types.

use std::marker::PhantomData;

use pgrx::IntoDatum;
use pgrx::pg_sys;

use crate::pg::arg::Arg;
use crate::pg::statement::Column as Owned;

/// A column, by its place. `T` is what it is read as: an `Option` where it may be NULL.
pub(crate) struct Column<T> {
    /// Counted from 1.
    pub(super) number: i16,
    _type: PhantomData<fn() -> T>,
}

impl<T> Clone for Column<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Column<T> {}

impl<T> Column<T> {
    /// The column at this place of a table, counted from 1. Only [`table!`] makes such.
    pub(crate) const fn new(number: i16) -> Self {
        Column { number, _type: PhantomData }
    }

    /// The column with a value for it.
    pub(crate) fn to<V: StoredAs<T>>(self, value: V) -> Set {
        Set { number: self.number, value: Arg::new(value) }
    }
}

/// A column with a value. To be used before the memory context goes in which it was made.
pub(crate) struct Set {
    /// The place of the column, counted from 1.
    pub(super) number: i16,
    /// The value, with its type.
    pub(super) value: Arg,
}

/// What can be written to a column that is read as `T`.
pub(crate) trait StoredAs<T>: IntoDatum {}

impl<T: IntoDatum> StoredAs<T> for T {}
impl StoredAs<String> for &str {}
impl StoredAs<Option<String>> for Option<&str> {}

/// What a column can be read as.
pub(crate) trait Read: Sized {
    /// Whether a column of this type can be.
    fn is_stored_as(oid: pg_sys::Oid) -> bool;

    /// # Safety
    /// The datum is of a type that passes the above, and what it points to is there.
    unsafe fn read(datum: pg_sys::Datum, null: bool) -> Self;
}

impl<T: Owned> Read for T {
    fn is_stored_as(oid: pg_sys::Oid) -> bool {
        T::is_compatible_with(oid)
    }

    unsafe fn read(datum: pg_sys::Datum, null: bool) -> Self {
        // SAFETY: as the caller says; a type that owns what it has copies it.
        match unsafe { T::from_datum(datum, null) } {
            Some(value) => value,
            None => pgrx::error!("a column of a table of the queue is NULL"),
        }
    }
}

impl<T: Owned> Read for Option<T> {
    fn is_stored_as(oid: pg_sys::Oid) -> bool {
        T::is_compatible_with(oid)
    }

    unsafe fn read(datum: pg_sys::Datum, null: bool) -> Self {
        // SAFETY: as above.
        unsafe { T::from_datum(datum, null) }
    }
}

/// Declares a table and its columns, in the order in which `sql/schema.sql` has them, and partial indexes; a test compares
/// them with the catalog.
macro_rules! table {
    ($name:literal: $($column:ident: $type:ty),+ $(,)?
     $(; $($index:literal where $on:ident $has:ident),+ $(,)?)?) => {
        static PARTIAL: [$crate::pg::table::Partial; <[&std::ffi::CStr]>::len(&[$($($index),+)?])] = [$($(
            $crate::pg::table::Partial::new($index, Number::$on as i16, $crate::pg::table::Has::$has)
        ),+)?];

        /// The table, as `pg::table` knows it.
        pub(crate) static TABLE: $crate::pg::table::Table = $crate::pg::table::Table::new($name, &PARTIAL);

        #[allow(non_camel_case_types, clippy::upper_case_acronyms, dead_code)]
        #[repr(i16)]
        enum Number {
            NONE,
            $($column),+
        }

        $(
            /// The column of this name, at its place in `sql/schema.sql`, which says what it holds.
            #[allow(dead_code, reason = "all are declared, so that their places are right")]
            pub(crate) const $column: $crate::pg::table::Column<$type> =
                $crate::pg::table::Column::new(Number::$column as i16);
        )+

        /// The columns, and whether each may be NULL, to be compared with the catalog.
        #[cfg(any(test, feature = "pg_test"))]
        #[allow(dead_code)]
        pub(crate) fn columns() -> Vec<(&'static str, bool)> {
            vec![$((stringify!($column), stringify!($type).starts_with("Option"))),+]
        }

        /// The partial indexes, to be compared with the catalog.
        #[cfg(any(test, feature = "pg_test"))]
        #[allow(dead_code)]
        pub(crate) fn partial() -> Vec<(&'static std::ffi::CStr, &'static str, &'static str)> {
            vec![$($(($index, stringify!($on), stringify!($has))),+)?]
        }
    };
}
pub(crate) use table;
