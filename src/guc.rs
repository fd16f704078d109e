//! Settings of the extension.

use std::ffi::CString;

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

/// `taskq.retention`: how long settled tasks are kept, in seconds; -1 for ever. 7 days by default. Any
/// user may set it: it is the session that settles a task which decides, as with the action's and the
/// task's own retention, which go before it. docs/reference.md gives the same number.
static RETENTION: GucSetting<i32> = GucSetting::<i32>::new(7 * 24 * 60 * 60);

/// `taskq.now`: a timestamp that replaces the queue's clock in this session; for tests. Superusers only:
/// it decides who may take whose tasks.
static NOW: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

/// Declares the settings; called once, when the library is loaded.
pub(crate) fn init() {
    GucRegistry::define_int_guc(
        c"taskq.retention",
        c"How long settled tasks are kept, unless the task or its action says otherwise.",
        c"-1 keeps them for ever.",
        &RETENTION,
        -1,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_string_guc(
        c"taskq.now",
        c"Replaces the clock of the queue in this session; for tests.",
        c"A timestamp; empty for the real clock.",
        &NOW,
        GucContext::Suset,
        GucFlags::default(),
    );
    // SAFETY: marks the prefix as ours, so that a misspelt setting is an error.
    #[cfg(not(feature = "pg14"))]
    unsafe {
        pgrx::pg_sys::MarkGUCPrefixReserved(c"taskq".as_ptr());
    }
}

/// Seconds that a settled task is kept by default; `None` for ever.
pub(crate) fn retention_seconds() -> Option<i32> {
    Some(RETENTION.get()).filter(|seconds| *seconds >= 0)
}

/// The time that `taskq.now` replaces the clock with, if it does.
pub(crate) fn fake_now() -> Option<String> {
    let text = NOW.get()?.into_string().ok()?;
    (!text.is_empty()).then_some(text)
}
