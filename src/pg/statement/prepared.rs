//! Planning a statement, and running it.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use pgrx::pg_sys;

use super::columns::{Header, Row};
use super::params::{self, Value};
use crate::pg::planner::{self, Settings};
use crate::pg::search_path::Pinned;
use crate::pg::{fit, session};

/// A statement's text and parameters, and its plan once it has one.
pub(crate) struct Prepared {
    sql: &'static std::ffi::CStr,
    types: &'static [pg_sys::Oid],
    plan: AtomicPtr<pg_sys::_SPI_plan>,
    /// Which of its generations we have made last: Postgres counts how often a plan was made.
    generation: AtomicI32,
    keep: bool,
}

/// Values, and which of them are NULL, as SPI takes them.
fn bound(
    given: &[Value],
) -> ([pg_sys::Datum; params::MOST_PARAMETERS], [std::ffi::c_char; params::MOST_PARAMETERS]) {
    let mut values = [pg_sys::Datum::from(0usize); params::MOST_PARAMETERS];
    let mut nulls = [b' ' as std::ffi::c_char; params::MOST_PARAMETERS];
    for (i, value) in given.iter().enumerate() {
        match value {
            Value(Some(datum)) => values[i] = *datum,
            Value(None) => nulls[i] = b'n' as std::ffi::c_char,
        }
    }
    (values, nulls)
}

/// What the reader makes of the rows of the statement that has run last.
///
/// # Safety
/// Must be called inside an SPI frame, after a statement in it.
unsafe fn read<T, F: FnMut(Row) -> T>(reader: impl FnOnce(Header) -> F) -> Vec<T> {
    // SAFETY: SPI keeps the table of the result until the end of the frame, with as many rows as it says.
    unsafe {
        let (count, table) = (pg_sys::SPI_processed as usize, pg_sys::SPI_tuptable);
        if table.is_null() || count == 0 {
            return Vec::new();
        }
        let tupdesc = (*table).tupdesc;
        let mut map = reader(Header(tupdesc));
        (0..count).map(|i| map(Row { tuple: *(*table).vals.add(i), tupdesc, _result: PhantomData })).collect()
    }
}

impl Prepared {
    /// A statement that is not prepared yet. `types`: of its parameters; `keep`: plan it once, and keep the
    /// plan.
    pub(super) const fn of(sql: &'static std::ffi::CStr, types: &'static [pg_sys::Oid], keep: bool) -> Self {
        assert!(types.len() <= params::MOST_PARAMETERS);
        Prepared { sql, types, plan: AtomicPtr::new(ptr::null_mut()), generation: AtomicI32::new(0), keep }
    }

    /// Runs the statement. If there are rows, `reader` is asked once, with the types of the result, for what is to be called with
    /// each of them.
    pub(super) fn run<T, F: FnMut(Row) -> T>(
        &'static self,
        given: &[Value],
        reader: impl FnOnce(Header) -> F,
    ) -> Done<T> {
        assert_eq!(given.len(), self.types.len());
        fit::check();
        let _path = Pinned::begin();
        let (mut values, nulls) = bound(given);
        // SAFETY: one SPI frame is opened and closed here, and no reference into its memory leaves it (a `Row` does not
        // outlive the call of what the reader gave, and gives owned values only). If anything raises an error in
        // between, the abort of the (sub)transaction closes the frame. A plan that is not kept goes with the frame;
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
            let snapshot = pg_sys::RegisterSnapshot(if session::is_read_committed() {
                pg_sys::GetTransactionSnapshot()
            } else {
                pg_sys::GetLatestSnapshot()
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
            let rows = read(reader);
            pg_sys::SPI_finish();
            Done { count, rows, xmin, pages }
        }
    }

    /// The statement, parsed and analyzed: the kept one, or a new one if none is kept.
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
                KEPT.with_borrow_mut(|kept| kept.push(self));
            }
            plan
        }
    }

    /// The SQL of the statement, for tests.
    #[cfg(any(test, feature = "pg_test"))]
    pub(crate) fn text(&self) -> &'static std::ffi::CStr {
        self.sql
    }

    /// The plan that is kept, if there is one yet.
    #[cfg(any(test, feature = "pg_test"))]
    pub(crate) fn kept_plan(&self) -> pg_sys::SPIPlanPtr {
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

/// How often a plan is made at most before an execution, where tables go on changing. The locks are had by then.
const MOST_PLANS: usize = 3;

/// What a statement has done, with what snapshot and at what cost.
pub(super) struct Done<T> {
    /// How many rows it has returned or changed.
    pub(super) count: u64,
    /// What was made of each row that it has returned, in order.
    pub(super) rows: Vec<T>,
    /// All transactions before this one had ended when its snapshot was taken.
    pub(super) xmin: pg_sys::TransactionId,
    /// How many pages its execution has read.
    pub(super) pages: u64,
}

#[cfg(any(test, feature = "pg_test"))]
thread_local! {
    static KEPT: std::cell::RefCell<Vec<&'static Prepared>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The statements of which this backend has a plan, for tests.
#[cfg(any(test, feature = "pg_test"))]
pub(crate) fn planned() -> Vec<&'static Prepared> {
    KEPT.with_borrow(Vec::clone)
}
