//! Planner settings for the making, and for the choice, of one plan.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::OnceLock;

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{PgList, pg_guard, pg_sys};

/// What the planner may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settings {
    /// Index scans and nested loops wherever these will do, as for tables that are large: for a statement that looks up few
    /// rows, and whose plan is kept while the tables grow.
    Lookups,
    /// What [`EVERYTHING`] says, whatever the session has set: for a statement that may read whole tables, planned when
    /// their sizes are known.
    Everything,
}

/// Each is said, also where it is the default: the session may have set another.
const LOOKUPS: [(&CStr, bool); 10] = [
    (c"enable_indexscan", true),
    (c"enable_indexonlyscan", true),
    (c"enable_tidscan", true),
    (c"enable_nestloop", true),
    (c"enable_seqscan", false),
    (c"enable_bitmapscan", false),
    (c"enable_sort", false),
    (c"enable_hashjoin", false),
    (c"enable_mergejoin", false),
    (c"jit", false),
];
const EVERYTHING: [(&CStr, bool); 10] = [
    (c"enable_indexscan", true),
    (c"enable_indexonlyscan", true),
    (c"enable_seqscan", true),
    (c"enable_bitmapscan", true),
    (c"enable_sort", true),
    (c"enable_hashagg", true),
    (c"enable_nestloop", true),
    (c"enable_hashjoin", true),
    (c"enable_mergejoin", true),
    (c"jit", false),
];

/// Runs `work` with the plans that are kept, where the session would have each execution make one: that would be under its own
/// settings.
pub(crate) fn with_kept_plans<T>(work: impl FnOnce() -> T) -> T {
    struct Back(std::ffi::c_int);

    impl Drop for Back {
        fn drop(&mut self) {
            // SAFETY: a setting of this backend, which has one thread.
            unsafe { pg_sys::plan_cache_mode = self.0 }
        }
    }

    // SAFETY: as above. It is read when a plan is chosen, and no function is called when it changes. An error puts it back
    // before the end of the (sub)transaction that it aborts does the same with what was set in that.
    let _back = unsafe {
        let back = Back(pg_sys::plan_cache_mode);
        pg_sys::plan_cache_mode = pg_sys::PlanCacheMode::PLAN_CACHE_MODE_AUTO as std::ffi::c_int;
        back
    };
    work()
}

/// Runs `work` with these settings.
pub(crate) fn with<T>(settings: Settings, work: impl FnOnce() -> T) -> T {
    let _sizes = Sizes::begin(settings);
    let settings = match settings {
        Settings::Lookups => &LOOKUPS,
        Settings::Everything => &EVERYTHING,
    };
    // SAFETY: as Postgres does for a function with SET clauses. If anything raises an error, the end of the
    // (sub)transaction that it aborts puts the settings back; every level above its own is put back then.
    unsafe {
        let level = pg_sys::NewGUCNestLevel();
        for (name, on) in settings {
            pg_sys::set_config_option(
                name.as_ptr(),
                if *on { c"on" } else { c"off" }.as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
        }
        let result = work();
        pg_sys::AtEOXact_GUC(true, level);
        result
    }
}

/// How large a table is at least, as a lookup is planned. Statistics may be those of a table that was empty, or whose rows
/// had not been committed. Of two ways to join what a statement has in hand with a table, one goes through the index for each
/// of these; the other goes through the whole table, and through all of these for each of its rows: for a table that is thought
/// to be empty, that seems the cheaper one.
const ROWS: f64 = 1_000_000.0;
const PAGES: pg_sys::BlockNumber = 20_000;

thread_local! {
    /// Whether what is planned now is a lookup.
    static LOOKS_UP: Cell<bool> = const { Cell::new(false) };
}

/// What is planned until this goes, also by an error, is planned for such sizes, or for those that the tables have.
struct Sizes {
    before: bool,
}

impl Sizes {
    fn begin(settings: Settings) -> Sizes {
        Sizes { before: LOOKS_UP.replace(matches!(settings, Settings::Lookups)) }
    }
}

impl Drop for Sizes {
    fn drop(&mut self) {
        LOOKS_UP.set(self.before);
    }
}

/// The hook that was there before ours, which is called first.
static BEFORE_US: OnceLock<pg_sys::get_relation_info_hook_type> = OnceLock::new();

/// Has the planner ask us for the sizes of tables.
pub(crate) fn init() {
    // SAFETY: a setting of this process, which has one thread; it is called once, as the library is loaded.
    unsafe {
        if BEFORE_US.set(pg_sys::get_relation_info_hook).is_ok() {
            pg_sys::get_relation_info_hook = Some(sizes);
        }
    }
}

/// # Safety
/// `rel` is what the planner has just filled in of a table.
#[pg_guard]
unsafe extern "C-unwind" fn sizes(
    root: *mut pg_sys::PlannerInfo,
    table: pg_sys::Oid,
    is_parent: bool,
    rel: *mut pg_sys::RelOptInfo,
) {
    // SAFETY: what the planner gives is handed on; it has made the list of indexes for this table, and nothing else has
    // it.
    unsafe {
        if let Some(before_us) = BEFORE_US.get().copied().flatten() {
            // An error in it jumps: caught there, it goes on through our frames as a panic.
            pg_guard_ffi_boundary(|| before_us(root, table, is_parent, rel));
        }
        if !LOOKS_UP.get() {
            return;
        }
        (*rel).tuples = (*rel).tuples.max(ROWS);
        (*rel).pages = (*rel).pages.max(PAGES);
        for index in PgList::<pg_sys::IndexOptInfo>::from_pg((*rel).indexlist).iter_ptr() {
            (*index).tuples = (*index).tuples.max(ROWS);
            (*index).pages = (*index).pages.max(PAGES / 4);
        }
    }
}
