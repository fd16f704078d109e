//! Whether anything has changed in tables whose changes are announced by invalidation messages.

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
    /// For these tables. Nothing is registered before [`TableChanges::version`] is first asked for.
    pub(crate) const fn of(tables: [&'static Table; N]) -> Self {
        TableChanges {
            tables,
            oids: [const { AtomicU32::new(0) }; N],
            listening: AtomicBool::new(false),
            count: AtomicU64::new(1),
        }
    }

    /// A number that changes as soon as something in the tables may have changed: by this transaction, or by one whose
    /// client had its answer before this call.
    ///
    /// **Why that holds.** A transaction that has called [`will_change`] sends its invalidation messages when it commits:
    /// after new snapshots see what it has written, and before its client gets its answer. This function takes in all
    /// messages sent by now. So if a snapshot that is taken after this number does not show a change, the message of that
    /// change comes later, and the number changes with it: what was read with the snapshot is not taken for current from
    /// then on.
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

/// To be called before a statement that changes a table whose changes are announced. This backend takes in the message
/// at the end of that statement and when it is rolled back, the other backends when it is committed.
pub(crate) fn will_change(table: &Table) {
    // SAFETY: a look-up in the system cache, and a note in the memory of the transaction.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(table.oid()) }
}
