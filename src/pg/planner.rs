//! Planner settings for the making of one plan.

use std::ffi::CStr;

use pgrx::pg_sys;

/// What the planner may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settings {
    /// Index scans and nested loops only: the one sensible plan for a statement that looks up few rows, and right at
    /// any size of the tables.
    Lookups,
    /// Everything, whatever the session has switched off: for a statement that may read whole tables, planned when their
    /// sizes are known.
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
