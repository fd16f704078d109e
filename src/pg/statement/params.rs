//! The parameters of a statement, as types.
//!
//! A parameter is named by the Rust type that stands for its SQL type: `i64` for bigint, `&str` for text, `&[i64]` for
//! bigint[]. From that the compiler has the OIDs, and it compares them with what each call gives. Any parameter may be
//! given as NULL, which is an `Option`.

use pgrx::datum::{Interval, Uuid};
use pgrx::{IntoDatum, pg_sys};

use crate::pg::clock::{Time, Wall};
use crate::pg::json::JsonText;

/// A type that a parameter can have.
pub(crate) trait SqlType {
    const OID: pg_sys::Oid;
}

/// A type that the elements of an array can have.
pub(crate) trait Element: SqlType {
    /// The OID of its arrays.
    const ARRAY: pg_sys::Oid;
}

impl<T: Element> SqlType for &'static [T] {
    const OID: pg_sys::Oid = T::ARRAY;
}

/// A value that can be given for a parameter of type `S`.
pub(crate) trait For<S: SqlType>: IntoDatum {}

impl<S: SqlType, T: For<S>> For<S> for Option<T> {}
impl<S: Element, T: For<S>> For<&'static [S]> for Vec<T> {}
impl<S: Element, T: For<S> + Copy> For<&'static [S]> for &[T] {}

macro_rules! types {
    ($($type:ty, $oid:ident, $array:ident;)*) => {
        $(
            impl SqlType for $type {
                const OID: pg_sys::Oid = pg_sys::$oid;
            }
            impl Element for $type {
                const ARRAY: pg_sys::Oid = pg_sys::$array;
            }
            impl For<$type> for $type {}
        )*
    };
}
types! {
    bool, BOOLOID, BOOLARRAYOID;
    i8, CHAROID, CHARARRAYOID;
    i16, INT2OID, INT2ARRAYOID;
    i32, INT4OID, INT4ARRAYOID;
    i64, INT8OID, INT8ARRAYOID;
    f64, FLOAT8OID, FLOAT8ARRAYOID;
    Time, TIMESTAMPTZOID, TIMESTAMPTZARRAYOID;
    Wall, TIMESTAMPTZOID, TIMESTAMPTZARRAYOID;
    Interval, INTERVALOID, INTERVALARRAYOID;
    JsonText, JSONBOID, JSONBARRAYOID;
    Uuid, UUIDOID, UUIDARRAYOID;
    pg_sys::Oid, OIDOID, OIDARRAYOID;
    pg_sys::ItemPointerData, TIDOID, TIDARRAYOID;
}

impl SqlType for &'static str {
    const OID: pg_sys::Oid = pg_sys::TEXTOID;
}
impl Element for &'static str {
    const ARRAY: pg_sys::Oid = pg_sys::TEXTARRAYOID;
}
impl For<&'static str> for &str {}
impl For<&'static str> for String {}
impl For<&'static str> for &String {}

/// A parameter as PostgreSQL takes it; `None` for NULL. Only this module makes one, so only its rules say which Rust
/// type is given for which SQL type.
pub(crate) struct Value(pub(super) Option<pg_sys::Datum>);

/// What a statement takes: nothing, one parameter, or several.
pub(crate) trait Params {
    const OIDS: &'static [pg_sys::Oid];
}

/// What a call gives to a statement that takes `P`.
pub(crate) trait Given<P: Params> {
    fn values(self) -> impl AsRef<[Value]>;
}

impl Params for () {
    const OIDS: &'static [pg_sys::Oid] = &[];
}
impl Given<()> for () {
    fn values(self) -> impl AsRef<[Value]> {
        let none: [Value; 0] = [];
        none
    }
}

impl<S: SqlType> Params for S {
    const OIDS: &'static [pg_sys::Oid] = &[S::OID];
}
impl<S: SqlType, T: For<S>> Given<S> for T {
    fn values(self) -> impl AsRef<[Value]> {
        [Value(self.into_datum())]
    }
}

/// How many parameters a statement has at most.
pub(super) const MOST_PARAMETERS: usize = 24;

macro_rules! several {
    ($($type:ident $given:ident $value:ident),+) => {
        impl<$($type: SqlType),+> Params for ($($type,)+) {
            const OIDS: &'static [pg_sys::Oid] = &[$($type::OID),+];
        }
        impl<$($type: SqlType, $given: For<$type>),+> Given<($($type,)+)> for ($($given,)+) {
            fn values(self) -> impl AsRef<[Value]> {
                let ($($value,)+) = self;
                [$(Value($value.into_datum())),+]
            }
        }
    };
}
/// For two parameters and more, up to all that are listed.
macro_rules! up_to {
    ([$($done:tt)+]) => { several!($($done)+); };
    ([$($done:tt)+] $type:ident $given:ident $value:ident $(, $($rest:tt)+)?) => {
        several!($($done)+);
        up_to!([$($done)+, $type $given $value] $($($rest)+)?);
    };
}
up_to!([A1 B1 c1, A2 B2 c2] A3 B3 c3, A4 B4 c4, A5 B5 c5, A6 B6 c6, A7 B7 c7, A8 B8 c8, A9 B9 c9, A10 B10 c10,
    A11 B11 c11, A12 B12 c12, A13 B13 c13, A14 B14 c14, A15 B15 c15, A16 B16 c16, A17 B17 c17, A18 B18 c18,
    A19 B19 c19, A20 B20 c20, A21 B21 c21, A22 B22 c22, A23 B23 c23, A24 B24 c24);
