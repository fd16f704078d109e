//! Whether anything may have changed in some of the system catalogs since something was looked up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pgrx::pg_sys;
use pgrx::pg_sys::SysCacheIdentifier::{NAMESPACEOID, RELNAMENSP};

/// Of the names of relations and schemas.
pub(super) static NAMES: Changes<2> = Changes::of([RELNAMENSP, NAMESPACEOID]);

/// Some of the system caches.
pub(crate) struct Changes<const N: usize> {
    caches: [pg_sys::SysCacheIdentifier::Type; N],
    listening: AtomicBool,
    /// How often something in them may have changed since this backend first asked, and one.
    count: AtomicU64,
}

impl<const N: usize> Changes<N> {
    /// For these caches. Nothing is registered before [`Changes::version`] is first asked for.
    pub(crate) const fn of(caches: [pg_sys::SysCacheIdentifier::Type; N]) -> Self {
        Changes { caches, listening: AtomicBool::new(false), count: AtomicU64::new(1) }
    }

    /// A number that is another one once this backend has heard of a change of something in the caches. It is not 0.
    pub(crate) fn version(&'static self) -> u64 {
        // This backend has one thread.
        if !self.listening.swap(true, Ordering::Relaxed) {
            for cache in self.caches {
                let count: *const AtomicU64 = &self.count;
                // SAFETY: once per backend and cache; callback and counter live as long as the library, which is never
                // unloaded.
                unsafe {
                    pg_sys::CacheRegisterSyscacheCallback(
                        cache as std::ffi::c_int,
                        Some(changed),
                        pg_sys::Datum::from(count.cast_mut()),
                    );
                }
            }
        }
        self.count.load(Ordering::Relaxed)
    }
}

/// Runs wherever Postgres takes note of changes: it touches nothing but a number.
unsafe extern "C-unwind" fn changed(count: pg_sys::Datum, _: std::ffi::c_int, _: pg_sys::uint32) {
    // SAFETY: registered with a counter in a static.
    unsafe { &*count.cast_mut_ptr::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
}
