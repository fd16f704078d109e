//! SQL statements, whose plans a backend keeps unless they say otherwise ([`Statement::planned_each_time`]).
//!
//! A [`Statement`] is a `static`, and a type: of its parameters, and of the rows that it
//! returns. The compiler compares both with what callers give and take; that the text means the same is compared when it
//! is planned and when the first row is read. A plan that is kept is made on first use with
//! `CURSOR_OPT_GENERIC_PLAN` (the automatic choice might plan such statements anew at each call), kept
//! for the life of the backend, and made anew when the plan cache says so, as after DDL or ANALYZE.
//!
//! **Planner settings belong to the plan.** A kept one is made under settings that prefer index scans and nested loops,
//! whichever call is the first and whatever its session has set of these (see [`planner`](super::planner)). So a plan
//! made while a table was empty is still right when it holds a million rows. Where the settings would leave the planner
//! free to turn a look-up per row around (in a join or an EXISTS), `OFFSET 0` is a fence.
//!
//! **Snapshots.** Under READ COMMITTED each statement gets a new snapshot, as anywhere in a volatile
//! function. Under REPEATABLE READ and above it runs with the *latest* snapshot instead of the
//! transaction's, as referential-integrity triggers do: a signal may not be lost because the edge it
//! should travel along was committed after the caller's snapshot was taken.

mod columns;
mod params;
mod prepared;

use std::marker::PhantomData;

use super::session;
use columns::Checked;
pub(crate) use columns::{Column, FromRow, Record};
pub(crate) use params::{Element, For, Given, Params, SqlType};
use prepared::Done;
pub(crate) use prepared::Prepared;
#[cfg(any(test, feature = "pg_test"))]
pub(super) use prepared::planned;

/// The text of a statement in several parts, of which some are written once for several statements.
macro_rules! sql {
    ($($part:expr),+ $(,)?) => {
        match ::std::ffi::CStr::from_bytes_with_nul(concat!($($part),+, "\0").as_bytes()) {
            Ok(sql) => sql,
            Err(_) => panic!("one NUL, at the end"),
        }
    };
}
pub(crate) use sql;

/// A struct that is read from the columns of a result, in the order of its fields.
macro_rules! record {
    ($(#[$attribute:meta])* $visible:vis struct $name:ident {
        $($(#[$about:meta])* $field_visible:vis $field:ident: $type:ty),+ $(,)?
    }) => {
        $(#[$attribute])*
        $visible struct $name {
            $($(#[$about])* $field_visible $field: $type),+
        }

        impl $crate::pg::statement::Record for $name {
            type Columns = ($($type,)+);

            fn of(($($field,)+): Self::Columns) -> Self {
                $name { $($field),+ }
            }
        }
    };
}
pub(crate) use record;

/// A statement that takes `P` and returns rows of `R`, with its plan once it has one.
pub(crate) struct Statement<P, R = ()> {
    prepared: Prepared,
    types: PhantomData<fn(P) -> R>,
}

impl<P: Params, R: FromRow> Statement<P, R> {
    /// A statement that will be planned on first use.
    pub(crate) const fn new(sql: &'static std::ffi::CStr) -> Self {
        Statement { prepared: Prepared::of(sql, P::OIDS, true), types: PhantomData }
    }

    /// A statement that is planned at each call, for its arguments and with whatever the planner has: for what may
    /// read whole tables, where the best plan is another one as they grow. The sizes of tables are looked up when it
    /// is planned, statistics may be those of an empty queue: so its joins have to go by indexes, or be written in a
    /// way that leaves no choice.
    pub(crate) const fn planned_each_time(sql: &'static std::ffi::CStr) -> Self {
        Statement { prepared: Prepared::of(sql, P::OIDS, false), types: PhantomData }
    }

    /// Runs the statement and returns how many rows it has returned or changed.
    pub(crate) fn execute(&'static self, given: impl Given<P>) -> u64 {
        self.prepared.run(given.values().as_ref(), |_| |_| ()).count
    }

    /// Runs the statement and returns its rows.
    pub(crate) fn query(&'static self, given: impl Given<P>) -> Vec<R> {
        self.map(given, |row| row)
    }

    /// Runs the statement and maps each of its rows.
    pub(crate) fn map<T>(&'static self, given: impl Given<P>, map: impl FnMut(R) -> T) -> Vec<T> {
        self.run(given, map).rows
    }

    /// Runs the statement and returns its first row, if there is one.
    pub(crate) fn first(&'static self, given: impl Given<P>) -> Option<R> {
        self.query(given).into_iter().next()
    }

    /// Runs the statement, returns its rows, and tells with what snapshot and at what cost.
    pub(crate) fn look(&'static self, given: impl Given<P>) -> (Vec<R>, Looked) {
        let done = self.run(given, |row| row);
        (done.rows, Looked { xmin: session::with_epoch(done.xmin), pages: done.pages })
    }

    /// The same, handing on its rows one by one.
    pub(crate) fn look_each(&'static self, given: impl Given<P>, each: impl FnMut(R)) -> Looked {
        let done = self.run(given, each);
        Looked { xmin: session::with_epoch(done.xmin), pages: done.pages }
    }

    /// Runs the statement and hands on its rows one by one, until one is answered with false: those behind it are not read.
    pub(crate) fn each_while(&'static self, given: impl Given<P>, mut each: impl FnMut(R) -> bool) {
        let mut goes_on = true;
        self.prepared.run(given.values().as_ref(), |header| {
            R::check(header, 1);
            move |row| {
                if goes_on {
                    goes_on = each(R::read(Checked(row), 1));
                }
            }
        });
    }

    fn run<T>(&'static self, given: impl Given<P>, mut map: impl FnMut(R) -> T) -> Done<T> {
        self.prepared.run(given.values().as_ref(), |header| {
            R::check(header, 1);
            move |row| map(R::read(Checked(row), 1))
        })
    }
}

/// With what snapshot a statement has looked, and at what cost.
pub(crate) struct Looked {
    /// Every transaction before this one had ended, and what it committed was seen.
    pub(crate) xmin: u64,
    /// How many pages it has read; for a plan that is kept, without those that planning took.
    pub(crate) pages: u64,
}
