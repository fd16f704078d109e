//! Relations of the queue's schema, found by name.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pgrx::pg_sys;

use super::changes::NAMES;
use super::fit;

/// A relation's name, and which one that is.
pub(crate) struct Named {
    name: &'static CStr,
    oid: AtomicU32,
    /// As of which change of the catalog; 0: never asked.
    as_of: AtomicU64,
}

impl Named {
    /// The relation of this name in the queue's schema; it is looked up when it is first asked for.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Named { name, oid: AtomicU32::new(0), as_of: AtomicU64::new(0) }
    }

    /// The relation that has the name now, by what this backend has heard. It is looked up anew once this backend has heard of
    /// a change of any relation or schema in the catalog.
    pub(crate) fn oid(&self) -> pg_sys::Oid {
        let oid = self.look_up();
        if oid == pg_sys::InvalidOid {
            pgrx::error!("relation taskq.{:?} does not exist", self.name);
        }
        oid
    }

    /// Whether this is the relation that has the name now.
    pub(super) fn is(&self, oid: pg_sys::Oid) -> bool {
        oid != pg_sys::InvalidOid && self.look_up() == oid
    }

    /// 0 if there is none in the schema.
    fn look_up(&self) -> pg_sys::Oid {
        let as_of = NAMES.version();
        // This backend has one thread.
        if self.as_of.load(Ordering::Relaxed) == as_of {
            return self.oid.load(Ordering::Relaxed).into();
        }
        fit::check();
        // SAFETY: look-ups in the system caches by strings that end with a NUL. Every call of the extension runs in
        // a transaction.
        let oid = unsafe {
            let schema = pg_sys::get_namespace_oid(c"taskq".as_ptr(), false);
            pg_sys::get_relname_relid(self.name.as_ptr(), schema)
        };
        self.oid.store(oid.to_u32(), Ordering::Relaxed);
        // The number from before the look-up: a change that it has heard of itself has it asked once more.
        self.as_of.store(as_of, Ordering::Relaxed);
        oid
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "taskq.{}", self.name.to_string_lossy())
    }
}
