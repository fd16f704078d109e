//! What a sleeping backend shows in `pg_stat_activity`: type `Extension`, and from PostgreSQL 17 on a name of ours. Older
//! servers have one name for all extensions, `Extension`.

#[cfg(any(feature = "pg17", feature = "pg18"))]
use std::cell::Cell;

#[cfg(not(any(feature = "pg17", feature = "pg18")))]
use pgrx::pg_sys;

/// What a process sleeps for.
#[derive(Clone, Copy)]
pub(crate) enum Sleep {
    /// A call: until there is work for it.
    ForWork,
    /// A call: until something happens to tasks that it names, or a process that it has sent has ended.
    ForTasks,
    /// The background worker of a database: until something is due.
    Worker,
}

impl Sleep {
    /// The number under which a sleep is shown.
    #[cfg(not(any(feature = "pg17", feature = "pg18")))]
    pub(super) fn event(self) -> u32 {
        pg_sys::PG_WAIT_EXTENSION
    }

    /// The number under which a sleep is shown: the server's for this name, which it keeps until it stops; asked for once in
    /// a backend. A server has room for 128 names of all extensions: where others have used them up, a sleep ends with the
    /// server's own error.
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    pub(super) fn event(self) -> u32 {
        thread_local! {
            static EVENTS: [Cell<u32>; 3] = const { [const { Cell::new(0) }; 4] };
        }
        EVENTS.with(|events| {
            let event = &events[self as usize];
            if event.get() == 0 {
                // SAFETY: a C string; the server copies it. It takes locks of its own and no latch, and an error leaves
                // nothing behind that the end of the transaction does not clean up.
                event.set(unsafe { pgrx::pg_sys::WaitEventExtensionNew(self.name().as_ptr()) });
            }
            event.get()
        })
    }

    #[cfg(any(feature = "pg17", feature = "pg18"))]
    fn name(self) -> &'static std::ffi::CStr {
        match self {
            Sleep::ForWork => c"TaskqWaitForWork",
            Sleep::ForTasks => c"TaskqWaitForTasks",
            Sleep::Worker => c"TaskqWorkerMain",
        }
    }
}
