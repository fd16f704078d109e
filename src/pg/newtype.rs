//! Numbers that the compiler tells apart.
//!
//! To PostgreSQL a task's number, a position and a nonce are all bigint. Here each is a type of its own, so that one
//! cannot be given for another; statements and tables take and return it as they do the number.

/// Declares a type for what is stored as a bigint. It is what it is stored as, and costs nothing.
macro_rules! newtype {
    ($(#[$about:meta])* $visible:vis struct $name:ident($field:vis i64);) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visible struct $name($field i64);

        #[allow(unsafe_code, reason = "what it does is written in src/pg")]
        impl ::pgrx::FromDatum for $name {
            unsafe fn from_polymorphic_datum(
                datum: ::pgrx::pg_sys::Datum,
                is_null: bool,
                oid: ::pgrx::pg_sys::Oid,
            ) -> Option<Self> {
                // SAFETY: as the caller promises, a bigint.
                unsafe { <i64 as ::pgrx::FromDatum>::from_polymorphic_datum(datum, is_null, oid) }.map($name)
            }
        }

        impl ::pgrx::IntoDatum for $name {
            fn into_datum(self) -> Option<::pgrx::pg_sys::Datum> {
                ::pgrx::IntoDatum::into_datum(self.0)
            }

            fn type_oid() -> ::pgrx::pg_sys::Oid {
                ::pgrx::pg_sys::INT8OID
            }
        }

        // SAFETY: a bigint is passed by value; nothing is borrowed.
        #[allow(unsafe_code, reason = "what it does is written in src/pg")]
        unsafe impl ::pgrx::datum::UnboxDatum for $name {
            type As<'src> = $name;

            unsafe fn unbox<'src>(datum: ::pgrx::datum::Datum<'src>) -> $name
            where
                Self: 'src,
            {
                // SAFETY: as the caller promises, a bigint.
                $name(unsafe { <i64 as ::pgrx::datum::UnboxDatum>::unbox(datum) })
            }
        }

        impl $crate::pg::statement::Column for $name {}

        impl $crate::pg::statement::Record for $name {
            type Columns = i64;

            fn of(number: i64) -> Self {
                $name(number)
            }
        }

        impl $crate::pg::statement::SqlType for $name {
            const OID: ::pgrx::pg_sys::Oid = ::pgrx::pg_sys::INT8OID;
        }

        impl $crate::pg::statement::Element for $name {
            const ARRAY: ::pgrx::pg_sys::Oid = ::pgrx::pg_sys::INT8ARRAYOID;
        }

        impl $crate::pg::statement::For<$name> for $name {}
    };
}
pub(crate) use newtype;
