//! SQL statements that are planned once per backend.
//!
//! A [`Statement`] is a `static` beside the function that runs it, and a type: of its parameters, and of the rows that it
//! returns. The compiler compares both with what callers give and take; that the text means the same is compared when it
//! is planned and when the first row is read. Its plan is made on first use with
//! `CURSOR_OPT_GENERIC_PLAN` (the automatic choice would plan such statements anew at each call), kept
//! for the life of the backend, and made anew when the plan cache says so, after DDL or ANALYZE.
//!
//! **Planner settings belong to the plan.** It is made under settings that leave only index scans and nested loops,
//! whichever call is the first and whatever its session has set (see [`planner`](super::planner)). So a plan made while
//! a table was empty is still right when it holds a million rows. Where the settings would leave the planner free to
//! turn a look-up per row around (in a join or an EXISTS), `OFFSET 0` is a fence.
//!
//! **Snapshots.** Under READ COMMITTED each statement gets a new snapshot, as anywhere in a volatile
//! function. Under REPEATABLE READ and above it runs with the *latest* snapshot instead of the
//! transaction's, as referential-integrity triggers do: a signal may not be lost because the edge it
//! should travel along was committed after the caller's snapshot was taken.

mod columns;
mod params;

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use pgrx::pg_sys;

use super::planner::{self, Settings};
use super::search_path::Pinned;
use super::{fit, session};
use columns::{Checked, Header};
pub(crate) use columns::{Column, FromRow, Record};
use params::Value;
pub(crate) use params::{Element, For, Given, Params, SqlType};

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

/// A statement's text and parameters, and its plan once it has one.
pub(crate) struct Prepared {
    sql: &'static std::ffi::CStr,
    types: &'static [pg_sys::Oid],
    plan: AtomicPtr<pg_sys::_SPI_plan>,
    /// Which of its generations we have made: Postgres counts how often a plan was made.
    generation: AtomicI32,
    keep: bool,
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

    /// Runs the statement and returns how many rows it touched.
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

    fn run<T>(&'static self, given: impl Given<P>, mut map: impl FnMut(R) -> T) -> Done<T> {
        self.prepared.run(given.values().as_ref(), |header| {
            R::check(header, 1);
            move |row| map(R::read(Checked(row), 1))
        })
    }
}

impl Prepared {
    const fn of(sql: &'static std::ffi::CStr, types: &'static [pg_sys::Oid], keep: bool) -> Self {
        assert!(types.len() <= params::MOST);
        Prepared { sql, types, plan: AtomicPtr::new(ptr::null_mut()), generation: AtomicI32::new(0), keep }
    }

    /// Runs the statement. `reader` is asked once, with the types of the result, for what is to be called with each row.
    fn run<T, F: FnMut(Row) -> T>(
        &'static self,
        given: &[Value],
        reader: impl FnOnce(Header) -> F,
    ) -> Done<T> {
        assert_eq!(given.len(), self.types.len());
        fit::check();
        let _path = Pinned::begin();
        let mut values = [pg_sys::Datum::from(0usize); params::MOST];
        let mut nulls = [b' ' as std::ffi::c_char; params::MOST];
        for (i, value) in given.iter().enumerate() {
            match value {
                Value(Some(datum)) => values[i] = *datum,
                Value(None) => nulls[i] = b'n' as std::ffi::c_char,
            }
        }
        // SAFETY: one SPI frame is opened and closed here, and no reference into its memory leaves it (a `Row` does not
        // outlive the call of what the reader gave, and gives owned values only). If anything raises an error in
        // between, the abort of the (sub)transaction closes the frame. The plan is a kept one and outlives the frame;
        // values and nulls are as many as its parameters, and of their types: the compiler has seen to that (`Given`).
        unsafe {
            if pg_sys::SPI_connect() != pg_sys::SPI_OK_CONNECT as i32 {
                pgrx::error!("SPI_connect failed");
            }
            let plan = self.plan();
            if self.keep {
                self.plan_and_lock(plan);
            }
            // Given explicitly under READ COMMITTED, too: left to itself SPI would also give the calling
            // portal a snapshot, for good, which a CALL that sleeps must not hold.
            let snapshot =
                pg_sys::RegisterSnapshot(if pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 {
                    pg_sys::GetLatestSnapshot()
                } else {
                    pg_sys::GetTransactionSnapshot()
                });
            let execute = || {
                let (values, nulls) = (values.as_mut_ptr(), nulls.as_ptr());
                pg_sys::SPI_execute_snapshot(plan, values, nulls, snapshot, ptr::null_mut(), false, true, 0)
            };
            let before = session::pages_read();
            let code = if self.keep {
                planner::with_kept_plans(execute)
            } else {
                planner::with(Settings::Everything, execute)
            };
            let pages = session::pages_read() - before;
            let xmin = (*snapshot).xmin;
            pg_sys::UnregisterSnapshot(snapshot);
            if code < 0 {
                pgrx::error!("SPI error {code} in {:?}", self.sql);
            }
            // Word of an update that came with the locks on the tables: what was done by then is rolled back.
            fit::check();
            let count = pg_sys::SPI_processed;
            let table = pg_sys::SPI_tuptable;
            let mut rows = Vec::new();
            if !table.is_null() && count > 0 {
                rows.reserve_exact(count as usize);
                let mut map = reader(Header((*table).tupdesc));
                for i in 0..count as usize {
                    let (tuple, tupdesc) = (*(*table).vals.add(i), (*table).tupdesc);
                    rows.push(map(Row { tuple, tupdesc, _result: PhantomData }));
                }
            }
            pg_sys::SPI_finish();
            Done { count, rows, xmin, pages }
        }
    }

    /// The statement, parsed and analyzed: the kept one, or a new one if this is the first use in this backend.
    ///
    /// # Safety
    /// Must be called inside an SPI frame.
    unsafe fn plan(&'static self) -> pg_sys::SPIPlanPtr {
        let kept = self.plan.load(Ordering::Relaxed);
        if !kept.is_null() {
            return kept;
        }
        let mut types = self.types.to_vec();
        // SAFETY: the caller is inside an SPI frame; text and types outlive the call.
        unsafe {
            let plan = pg_sys::SPI_prepare_cursor(
                self.sql.as_ptr(),
                types.len() as i32,
                types.as_mut_ptr(),
                if self.keep { pg_sys::CURSOR_OPT_GENERIC_PLAN } else { pg_sys::CURSOR_OPT_CUSTOM_PLAN }
                    as i32,
            );
            if plan.is_null() || (self.keep && pg_sys::SPI_keepplan(plan) != 0) {
                pgrx::error!("cannot prepare {:?}", self.sql);
            }
            // One that is not kept goes with the SPI frame.
            if self.keep {
                self.plan.store(plan, Ordering::Relaxed);
                #[cfg(any(test, feature = "pg_test"))]
                super::kept::note(self);
            }
            plan
        }
    }

    #[cfg(any(test, feature = "pg_test"))]
    pub(super) fn text(&self) -> &'static std::ffi::CStr {
        self.sql
    }

    /// The plan that is kept, if there is one yet.
    #[cfg(any(test, feature = "pg_test"))]
    pub(super) fn kept_plan(&self) -> pg_sys::SPIPlanPtr {
        self.plan.load(Ordering::Relaxed)
    }

    /// Locks the tables, as the execution would; and makes the plan, if there is none that is valid and ours.
    ///
    /// The snapshot is taken after that: one from before an ALTER TABLE has rewritten a table sees no row in it. And word of
    /// what makes a plan invalid comes with the locks: left to itself, the execution would make another one then, under the
    /// settings of the session.
    ///
    /// # Safety
    /// `plan` is the kept one of this statement, and we are inside an SPI frame.
    unsafe fn plan_and_lock(&self, plan: pg_sys::SPIPlanPtr) {
        // SAFETY: the list has one source, since the text is one statement. The source lives as long as the plan, and
        // its generic plan as long as it points to it. Making the plan invalid is what Postgres does itself when a table
        // changes: an execution that is under way has a reference and goes on. The reference that we are given is given
        // back at once; the one of the source stays, and so do the locks.
        unsafe {
            pg_sys::AcceptInvalidationMessages();
            let sources = pg_sys::SPI_plan_get_plan_sources(plan);
            let source = (*(*sources).elements).ptr_value.cast::<pg_sys::CachedPlanSource>();
            let is_ours = |generic: *mut pg_sys::CachedPlan| {
                (*source).generation == self.generation.load(Ordering::Relaxed)
                    && (*source).is_valid
                    && !generic.is_null()
                    && (*generic).is_valid
            };
            let lock = || {
                let generic = pg_sys::SPI_plan_get_cached_plan(plan);
                pg_sys::ReleaseCachedPlan(generic, pg_sys::CurrentResourceOwner);
            };
            if is_ours((*source).gplan) {
                lock();
            }
            for _ in 0..MOST_PLANS {
                let generic = (*source).gplan;
                if is_ours(generic) {
                    return;
                }
                if !generic.is_null() {
                    (*generic).is_valid = false;
                }
                planner::with(Settings::Lookups, lock);
                self.generation.store((*source).generation, Ordering::Relaxed);
            }
        }
    }
}

/// How often a plan is made for one execution, where tables go on changing. The locks are had by then.
const MOST_PLANS: usize = 3;

/// What a statement has done, with what snapshot and at what cost.
struct Done<T> {
    count: u64,
    rows: Vec<T>,
    xmin: pg_sys::TransactionId,
    pages: u64,
}

/// With what snapshot a statement has looked, and at what cost.
pub(crate) struct Looked {
    /// Every transaction before this one had ended, and what it committed was seen.
    pub(crate) xmin: u64,
    /// How many pages it has read, but for those that planning took.
    pub(crate) pages: u64,
}

/// A row of a result, valid while its statement's result is being mapped.
#[derive(Clone, Copy)]
pub(crate) struct Row<'r> {
    tuple: pg_sys::HeapTuple,
    tupdesc: pg_sys::TupleDesc,
    _result: PhantomData<&'r ()>,
}
