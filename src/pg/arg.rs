//! Values on their way to PostgreSQL, with their types.

use pgrx::{IntoDatum, pg_sys};

/// A column of a result, of a row that is stored or of a key that is looked for, with its type. To be used before the
/// memory context goes in which it was made.
#[derive(Clone, Copy)]
pub(crate) struct Arg {
    /// `None` for NULL.
    pub(super) datum: Option<pg_sys::Datum>,
    /// A function, since the type of an array has to be looked up: it is asked where types are compared.
    type_oid: fn() -> pg_sys::Oid,
}

impl Arg {
    /// A value, with the type that Postgres has for a `T`. An `Option` that is `None` becomes NULL.
    pub(crate) fn new<T: IntoDatum>(value: T) -> Self {
        Arg { datum: value.into_datum(), type_oid: T::type_oid }
    }

    /// The type of the value in the catalog.
    pub(super) fn type_oid(self) -> pg_sys::Oid {
        (self.type_oid)()
    }
}
