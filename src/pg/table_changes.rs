//! Whether anything has changed in tables whose writers tell of it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use pgrx::pg_sys;

use super::table::Table;

/// Some tables of the queue's whose writers tell of it: see [`will_change`].
pub(crate) struct TableChanges<const N: usize> {
    tables: [&'static Table; N],
    /// Which they were when they were last asked about.
    oids: [AtomicU32; N],
    listening: AtomicBool,
    count: AtomicU64,
}

impl<const N: usize> TableChanges<N> {
    pub(crate) const fn of(tables: [&'static Table; N]) -> Self {
        TableChanges {
            tables,
            oids: [const { AtomicU32::new(0) }; N],
            listening: AtomicBool::new(false),
            count: AtomicU64::new(1),
        }
    }

    /// A number that is another one as soon as something in the tables may have changed: by this transaction, or by one
    /// that had come back to its client when this was called.
    ///
    /// **Why that holds.** Who has called [`will_change`] sends word when it commits, after what it has written is seen by
    /// new snapshots, and before its client is told. Here is taken note of whatever was sent by now. So a snapshot that is
    /// taken after this number was, and does not show a change, is older than the word of it, which comes later: what was
    /// read with it is not taken for current once that is there.
    pub(crate) fn version(&'static self) -> u64 {
        // This backend has one thread.
        if !self.listening.swap(true, Ordering::Relaxed) {
            let this: *const Self = self;
            // SAFETY: once per backend; callback and static live as long as the library, which is never unloaded.
            unsafe {
                pg_sys::CacheRegisterRelcacheCallback(
                    Some(table_changed::<N>),
                    pg_sys::Datum::from(this.cast_mut()),
                );
            }
        }
        // SAFETY: we are in a transaction; takes note of what others have sent.
        unsafe { pg_sys::AcceptInvalidationMessages() };
        for (table, known) in self.tables.iter().zip(&self.oids) {
            let oid = table.oid().to_u32();
            if known.swap(oid, Ordering::Relaxed) != oid {
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.count.load(Ordering::Relaxed)
    }
}

/// Runs wherever Postgres takes note of changes: it touches nothing but a number. No table is named where all may have
/// changed.
unsafe extern "C-unwind" fn table_changed<const N: usize>(this: pg_sys::Datum, table: pg_sys::Oid) {
    // SAFETY: registered with a static.
    let this = unsafe { &*this.cast_mut_ptr::<TableChanges<N>>() };
    if table == pg_sys::InvalidOid
        || this.oids.iter().any(|oid| oid.load(Ordering::Relaxed) == table.to_u32())
    {
        this.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// To be called before a statement that changes a table whose changes are told: this backend hears of it at the end of
/// that statement and when it is rolled back, the others when it is committed.
pub(crate) fn will_change(table: &Table) {
    // SAFETY: a look-up in the system cache, and a note in the memory of the transaction.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(table.oid()) }
}
