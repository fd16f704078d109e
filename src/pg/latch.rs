//! Sleeping until another backend's commit, without NOTIFY and without shared memory of our own.
//!
//! A waiting call takes a *share* lock on each tag that stands for what it waits for, and sleeps on its latch.
//! No call of this library takes a lock that conflicts: a committing backend only asks the lock manager which backends
//! would conflict with an exclusive one (`GetLockConflicts`) and sets latches of theirs. The order *register, reset the
//! latch, look, sleep* loses no wake-up of a commit that has a callback here: the look sees such a commit before it, and
//! one after it finds the registration. (For others see [`has_silent_commits`](super::session::has_silent_commits), for
//! an exception [`check_client`].)

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

use super::wait_event::Sleep;

/// The fourth field of our lock tags. The SQL advisory-lock functions only put 1 and 2 there, so none of their locks
/// collides with ours or is taken for a waiting call.
pub(crate) const TAG_CLASS: u16 = 0x7471;

/// Kinds of channels from here on are of the whole server, the others of one database.
pub(crate) const OF_SERVER: u8 = 0x80;

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
        // SAFETY: reads a variable.
        let database = if self.kind >= OF_SERVER { 0 } else { unsafe { pg_sys::MyDatabaseId }.to_u32() };
        pg_sys::LOCKTAG {
            locktag_field1: database,
            locktag_field2: (u32::from(self.kind) << 24) | ((self.number >> 32) as u32 & 0x00ff_ffff),
            locktag_field3: self.number as u32,
            locktag_field4: TAG_CLASS,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        }
    }
}

/// Makes this backend findable under the channel, until [`unregister`]. A channel may be registered more than
/// once, and has to be given up as often.
///
/// The lock is a session-level one: it does not end with the transaction but in [`unregister`], which the
/// callbacks of a transaction's end lead to as well. So a call can give up its registration before it checks for the last
/// time whether it was woken.
pub(crate) fn register(channel: Channel) {
    let tag = channel.tag();
    // SAFETY: a share lock that nothing conflicts with is granted at once. It raises an error only if the lock
    // table is full, and has taken nothing then.
    unsafe { pg_sys::LockAcquire(&tag, pg_sys::ShareLock as i32, true, false) };
}

/// Gives up a registration.
pub(crate) fn unregister(channel: Channel) {
    let tag = channel.tag();
    // SAFETY: releases a lock that `register` took.
    unsafe { pg_sys::LockRelease(&tag, pg_sys::ShareLock as i32, true) };
}

/// The nesting level of the current subtransaction.
pub(crate) fn nest_level() -> i32 {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetCurrentTransactionNestLevel() }
}

/// Forgets earlier wake-ups. To be called before looking at what is waited for.
pub(crate) fn reset() {
    // SAFETY: this backend's own latch.
    unsafe { pg_sys::ResetLatch(pg_sys::MyLatch) };
}

/// Whether this backend's latch is set: it was woken since the last [`reset`], by a commit of the queue or by PostgreSQL.
pub(crate) fn is_set() -> bool {
    // SAFETY: reads a variable.
    is_latch_set(unsafe { pg_sys::MyLatch })
}

/// Sleeps until the latch is set or the time is over; tells which it was (`true`: the latch). An interrupt of the
/// server's, as a cancel, a termination or statement_timeout, ends the sleep with its error.
pub(crate) fn sleep(time: Duration, why: Sleep) -> bool {
    let shown = why.event();
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: this backend's own latch; the timeout is not negative. The catalog snapshot is one that
    // Postgres keeps for itself and takes anew when needed; kept over a sleep it would hold back vacuum.
    let ended_by = unsafe {
        pg_sys::InvalidateCatalogSnapshot();
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            events as i32,
            // Rounded up: a sleep that ends a moment too early would cost a look that finds nothing.
            time.as_micros().div_ceil(1000).min(i32::MAX as u128) as std::ffi::c_long,
            shown,
        )
    };
    pgrx::check_for_interrupts!();
    ended_by & pg_sys::WL_LATCH_SET as i32 != 0
}

// SAFETY: declared as in the sources.
unsafe extern "C-unwind" {
    /// libpq/pqcomm.c; not among pgrx's bindings, and not guarded as those are: what it raises jumps.
    fn pq_check_connection() -> bool;
    /// storage/ipc/sinvaladt.c (to PostgreSQL 16); not among pgrx's bindings. Raises nothing.
    #[cfg(not(any(feature = "pg17", feature = "pg18")))]
    fn BackendIdGetProc(backend_id: std::ffi::c_int) -> *mut pg_sys::PGPROC;
}

/// Raises an error if the server sees that the client has gone: a grant to such a client would be of no use. It resets
/// the latch if that is set (`pq_check_connection` does, to see what the socket has), so it must not be called
/// between a look and the sleep after it. (With `client_connection_check_interval` the server makes the same
/// check itself at that interval. If that check falls between look and sleep, and a wake-up before it, the
/// wake-up is lost; the next regular look makes up for it.)
pub(crate) fn check_client() {
    // SAFETY: MyProcPort is set in client backends only, and the check is made only there. An error of it is caught where
    // it is raised, and goes on through our frames as a panic.
    let alive = unsafe { pg_sys::MyProcPort.is_null() || pg_guard_ffi_boundary(|| pq_check_connection()) };
    if !alive {
        super::throw::throw("08006", "the client of this waiting call has gone", "", "");
    }
}

/// How many of the backends that are registered under a channel are to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HowMany {
    UpTo(usize),
    All,
}

impl HowMany {
    /// So many and `more`, together.
    pub(crate) fn and(self, more: HowMany) -> HowMany {
        match (self, more) {
            (HowMany::UpTo(some), HowMany::UpTo(more)) => HowMany::UpTo(some.saturating_add(more)),
            _ => HowMany::All,
        }
    }

    /// How many are left to be woken. `woken` may exceed the limit: a backend that was woken may have left and come
    /// back.
    pub(crate) fn less(self, woken: usize) -> HowMany {
        match self {
            HowMany::UpTo(limit) => HowMany::UpTo(limit.saturating_sub(woken)),
            HowMany::All => HowMany::All,
        }
    }
}

/// Wakes so many of the backends that are registered under the channel, those first that have registered last: what they
/// need is the likeliest to be in the processor's caches still. Returns how many.
///
/// Called after commits, too: nothing in here raises an error short of running out of memory.
///
/// Where not all are woken, a backend whose latch is set is skipped: it has been woken already, by the queue or by the server. Either it has
/// still to reset its latch, and looks after that; or it has looked, and hands on a wake-up that it finds when it has
/// given up its registration. A backend that is being woken may be about to leave: it may have read the state of its
/// latch between our list and our wake-up. So the list is made again. A backend that is still in it will find its latch
/// set; for each one that is not in it any more another is woken, if there is another.
pub(crate) fn wake(channel: Channel, how_many: HowMany) -> usize {
    wake_among(how_many, || {
        let mut holders = holders(channel);
        holders.reverse();
        holders
    })
}

/// The same, those first that have registered first.
pub(crate) fn wake_in_turn(channel: Channel, how_many: HowMany) -> usize {
    wake_among(how_many, || holders(channel))
}

/// The same in the order of the backends' numbers, from the highest on.
pub(crate) fn wake_highest(channel: Channel, how_many: HowMany) -> usize {
    wake_among(how_many, || in_order_of_number(holders(channel)))
}

/// Wakes the one of those registered under the channel, and not awake yet, whose number comes next below that of this backend.
pub(crate) fn wake_next_lower(channel: Channel) -> usize {
    let me = my_number();
    wake_among(HowMany::UpTo(1), || {
        let mut holders = in_order_of_number(holders(channel));
        holders.retain(|holder| number(holder) < me);
        holders
    })
}

fn in_order_of_number(mut holders: Vec<pg_sys::VirtualTransactionId>) -> Vec<pg_sys::VirtualTransactionId> {
    holders.sort_unstable_by_key(|holder| std::cmp::Reverse(number(holder)));
    holders
}

/// Wakes so many of those whom `list` gives, the first ones first. See [`wake`].
fn wake_among(how_many: HowMany, list: impl Fn() -> Vec<pg_sys::VirtualTransactionId>) -> usize {
    match how_many {
        HowMany::UpTo(limit) => wake_some_among(limit, list),
        // Whether they are awake or not: a backend that is about to fall asleep must not.
        HowMany::All => list().into_iter().filter(|holder| set_latch(*holder, true)).count(),
    }
}

fn wake_some_among(limit: usize, list: impl Fn() -> Vec<pg_sys::VirtualTransactionId>) -> usize {
    if limit == 0 {
        return 0;
    }
    let mut woken: Vec<pg_sys::VirtualTransactionId> = Vec::new();
    loop {
        let holders = list();
        let there = woken.iter().filter(|w| holders.iter().any(|h| same(h, w))).count();
        let before = woken.len();
        for holder in &holders {
            if there + woken.len() - before >= limit {
                break;
            }
            if !woken.iter().any(|w| same(holder, w)) && set_latch(*holder, false) {
                woken.push(*holder);
            }
        }
        // Enough are still there, or no backend is left to take the place of one that has gone.
        if woken.len() == before {
            return there;
        }
    }
}

/// Whether another backend is registered under the channel, and in a transaction.
pub(crate) fn is_any_registered(channel: Channel) -> bool {
    !holders(channel).is_empty()
}

/// Whether a backend is registered under the channel, this backend included, asleep in a transaction or not.
pub(crate) fn is_used(channel: Channel) -> bool {
    let tag = channel.tag();
    // SAFETY: looks into the lock table; raises an error only for a lock method that there is not.
    unsafe { pg_sys::LockWaiterCount(&tag) != 0 }
}

/// Whether another backend is registered under the channel and has not been woken.
pub(crate) fn is_any_asleep(channel: Channel) -> bool {
    holders(channel).iter().any(|holder| !latch_of(*holder).is_none_or(is_latch_set))
}

/// The other backends that are registered under the channel and in a transaction.
fn holders(channel: Channel) -> Vec<pg_sys::VirtualTransactionId> {
    let tag = channel.tag();
    // SAFETY: GetLockConflicts returns a palloc'ed array of `count` entries. Both raise an error only for a lock method that there
    // is not, or without memory.
    unsafe {
        // Mostly there is none. This finds it out without an array that has room for every possible
        // connection.
        if pg_sys::LockWaiterCount(&tag) == 0 {
            return Vec::new();
        }
        let mut count = 0;
        let array = pg_sys::GetLockConflicts(&tag, pg_sys::ExclusiveLock as i32, &mut count);
        let holders = std::slice::from_raw_parts(array, count as usize).to_vec();
        pg_sys::pfree(array.cast());
        holders
    }
}

/// The process ids of the other backends that are registered under the channel and in a transaction.
pub(crate) fn pids(channel: Channel) -> Vec<i32> {
    let procs = holders(channel).into_iter().map(backend).filter(|proc_| !proc_.is_null());
    // SAFETY: reads a field in shared memory that is there.
    procs.map(|proc_| unsafe { (*proc_).pid }).collect()
}

/// The process id of this backend.
pub(crate) fn my_pid() -> i32 {
    // SAFETY: reads a variable.
    unsafe { pg_sys::MyProcPid }
}

/// Sets a backend's latch, if it is not set yet or `anyway`; whether it did.
fn set_latch(holder: pg_sys::VirtualTransactionId, anyway: bool) -> bool {
    match latch_of(holder) {
        Some(latch) if anyway || !is_latch_set(latch) => {
            // SAFETY: see `latch_of`.
            unsafe { pg_sys::SetLatch(latch) };
            true
        }
        _ => false,
    }
}

/// The latch of a backend. A PGPROC lives in shared memory for ever. If its backend has gone or is another by
/// now, the latch that is set has no owner or another one; every process that waits on a latch copes with a
/// spurious wake-up.
fn latch_of(holder: pg_sys::VirtualTransactionId) -> Option<*mut pg_sys::Latch> {
    let proc_ = backend(holder);
    // SAFETY: takes the address of a field in shared memory that is there.
    (!proc_.is_null()).then(|| unsafe { std::ptr::addr_of_mut!((*proc_).procLatch) })
}

/// Reads a latch. If it is set, everything that this backend has made visible to others before is visible to the owner of
/// the latch once it resets it.
fn is_latch_set(latch: *mut pg_sys::Latch) -> bool {
    fence(Ordering::SeqCst);
    // SAFETY: reads a field in shared memory that others may write.
    unsafe { std::ptr::addr_of!((*latch).is_set).read_volatile() != 0 }
}

#[cfg(any(feature = "pg17", feature = "pg18"))]
fn same(a: &pg_sys::VirtualTransactionId, b: &pg_sys::VirtualTransactionId) -> bool {
    (a.procNumber, a.localTransactionId) == (b.procNumber, b.localTransactionId)
}

#[cfg(not(any(feature = "pg17", feature = "pg18")))]
fn same(a: &pg_sys::VirtualTransactionId, b: &pg_sys::VirtualTransactionId) -> bool {
    (a.backendId, a.localTransactionId) == (b.backendId, b.localTransactionId)
}

/// A number that no other backend has at the same time.
#[cfg(any(feature = "pg17", feature = "pg18"))]
fn number(vxid: &pg_sys::VirtualTransactionId) -> i32 {
    vxid.procNumber
}

/// A number that no other backend has at the same time.
#[cfg(not(any(feature = "pg17", feature = "pg18")))]
fn number(vxid: &pg_sys::VirtualTransactionId) -> i32 {
    vxid.backendId
}

/// That of this backend.
fn my_number() -> i32 {
    // SAFETY: reads a variable.
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    unsafe {
        pg_sys::MyProcNumber
    }
    // SAFETY: as above.
    #[cfg(not(any(feature = "pg17", feature = "pg18")))]
    unsafe {
        pg_sys::MyBackendId
    }
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
