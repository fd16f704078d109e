//! Sleeping until another backend's commit, without NOTIFY, polling or shared memory of our own.
//!
//! A waiter takes a *share* lock on a tag that stands for what it waits for and sleeps on its latch.
//! Nobody ever takes a conflicting lock; a committing backend only asks the lock manager who would
//! conflict with an exclusive one (`GetLockConflicts`) and sets their latches. The order *register,
//! reset the latch, look, sleep* loses no wake-up: a commit before the look is seen by the look, a
//! commit after it finds the registration.

use std::time::Duration;

use pgrx::pg_sys;

/// The fourth field of our lock tags. The SQL advisory-lock functions only make 1 and 2 there, so
/// nobody's advisory locks collide with ours or pose as waiters.
pub(crate) const TAG_CLASS: u16 = 0x7471;

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Channel {
    /// What the number means.
    pub(crate) kind: u8,
    /// 56 bits are used.
    pub(crate) number: u64,
}

impl Channel {
    fn tag(self) -> pg_sys::LOCKTAG {
        pg_sys::LOCKTAG {
            // SAFETY: reads a variable.
            locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
            locktag_field2: (u32::from(self.kind) << 24) | ((self.number >> 32) as u32 & 0x00ff_ffff),
            locktag_field3: self.number as u32,
            locktag_field4: TAG_CLASS,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        }
    }
}

/// Registrations of this backend, given up when dropped. An error gives them up too: they are
/// transaction-level locks.
pub(crate) struct Registration {
    tags: Vec<pg_sys::LOCKTAG>,
}

impl Registration {
    /// Makes this backend findable under each of the channels.
    pub(crate) fn new(channels: &[Channel]) -> Self {
        let mut registration = Registration { tags: Vec::with_capacity(channels.len()) };
        for channel in channels {
            let tag = channel.tag();
            // SAFETY: a share lock that nothing conflicts with is granted at once.
            unsafe { pg_sys::LockAcquire(&tag, pg_sys::ShareLock as i32, false, false) };
            registration.tags.push(tag);
        }
        registration
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: reads a variable. While a panic carries an error outwards, the abort of the
        // transaction releases the locks; releasing them here as well would find them gone.
        if std::thread::panicking() {
            return;
        }
        for tag in &self.tags {
            // SAFETY: releases a lock that `new` took.
            unsafe { pg_sys::LockRelease(tag, pg_sys::ShareLock as i32, false) };
        }
    }
}

/// Forgets earlier wake-ups. To be called before looking at what is waited for.
pub(crate) fn reset() {
    // SAFETY: this backend's own latch.
    unsafe { pg_sys::ResetLatch(pg_sys::MyLatch) };
}

/// Whether somebody has woken this backend since the last [`reset`].
pub(crate) fn is_set() -> bool {
    // SAFETY: reads a field of this backend's own latch, which others may set.
    unsafe { std::ptr::addr_of!((*pg_sys::MyLatch).is_set).read_volatile() != 0 }
}

/// Sleeps until a wake-up or the end of the time. Cancel, terminate, statement_timeout, shutdown and a
/// client that has gone end the sleep with an error.
pub(crate) fn sleep(time: Duration) {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: this backend's own latch; the timeout is not negative. The catalog snapshot is one that
    // Postgres keeps for itself and takes anew when needed; kept over a sleep it would hold back vacuum.
    unsafe {
        pg_sys::InvalidateCatalogSnapshot();
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            events as i32,
            time.as_millis().min(i32::MAX as u128) as std::ffi::c_long,
            pg_sys::PG_WAIT_EXTENSION,
        );
    }
    pgrx::check_for_interrupts!();
}

unsafe extern "C-unwind" {
    /// libpq/pqcomm.c; not among pgrx's bindings.
    fn pq_check_connection() -> bool;
    /// storage/ipc/sinvaladt.c (to PostgreSQL 16); not among pgrx's bindings.
    #[cfg(not(any(feature = "pg17", feature = "pg18")))]
    fn BackendIdGetProc(backend_id: std::ffi::c_int) -> *mut pg_sys::PGPROC;
}

/// Raises an error if the client has vanished: a grant must not go to nobody.
pub(crate) fn check_client() {
    // SAFETY: MyProcPort is set in client backends only, and the check is made only there.
    let alive = unsafe { pg_sys::MyProcPort.is_null() || pq_check_connection() };
    if !alive {
        super::throw::throw("08006", "the client of this waiting call has gone", "", "");
    }
}

/// Wakes up to `limit` backends that are registered under the channel; returns how many.
///
/// Called after a commit: nothing in here raises an error short of running out of memory.
pub(crate) fn wake(channel: Channel, limit: usize) -> usize {
    let tag = channel.tag();
    let mut woken = 0;
    // SAFETY: GetLockConflicts returns a palloc'ed array of `count` entries. A PGPROC lives in shared
    // memory for ever; if its backend has gone or is another by now, the latch that is set is one that
    // nobody or somebody else owns, and everybody who waits on a latch copes with a spurious wake-up.
    unsafe {
        let mut count = 0;
        let holders = pg_sys::GetLockConflicts(&tag, pg_sys::ExclusiveLock as i32, &mut count);
        for i in 0..count as usize {
            if woken == limit {
                break;
            }
            let proc_ = backend(*holders.add(i));
            if proc_.is_null() {
                continue;
            }
            let latch = std::ptr::addr_of_mut!((*proc_).procLatch);
            // One whose latch is set has been woken already: it will look, and hand on what it leaves.
            if limit == usize::MAX || std::ptr::addr_of!((*latch).is_set).read_volatile() == 0 {
                pg_sys::SetLatch(latch);
                woken += 1;
            }
        }
        pg_sys::pfree(holders.cast());
    }
    woken
}

/// The shared structure of the backend that a virtual transaction id belongs to.
#[cfg(any(feature = "pg17", feature = "pg18"))]
fn backend(vxid: pg_sys::VirtualTransactionId) -> *mut pg_sys::PGPROC {
    // SAFETY: returns NULL for a number that no live backend has.
    unsafe { pg_sys::ProcNumberGetProc(vxid.procNumber) }
}

/// The shared structure of the backend that a virtual transaction id belongs to.
#[cfg(not(any(feature = "pg17", feature = "pg18")))]
fn backend(vxid: pg_sys::VirtualTransactionId) -> *mut pg_sys::PGPROC {
    // SAFETY: returns NULL for a number that no live backend has.
    unsafe { BackendIdGetProc(vxid.backendId) }
}
