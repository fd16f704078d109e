//! A little shared memory, only there if the library is preloaded: what is known of the background workers of
//! databases, where the latch of each is, and until when it means to sleep, for instance.
//!
//! Each value is an atomic of its own, so no lock is needed. Only the launcher gives slots to databases and takes
//! them back.
//!
//! **No wake-up of a worker that runs is lost.** A backend that commits something with a time first lowers `told` to
//! that time and then reads `wakes_at`, both when its commit is visible. If `wakes_at` is later, the backend sets the
//! worker's latch. The worker sets `told` to infinity *before* it looks, and `wakes_at` lower than any time. *After* the
//! look it sets `wakes_at` to the time at which it means to wake up, and then reads `told`. If the look missed a commit,
//! the committing backend lowers `told` after the worker has raised it. Either it does so before the worker reads
//! `told`, and the worker sleeps no longer than that; or it reads `wakes_at` after the worker has set it, and sets the
//! latch if that is later.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, Ordering::SeqCst};

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;

use super::clock::Wall;

/// For how many databases there is room. A server as shipped has room for eight background workers.
const MOST_DATABASES: usize = 128;

/// `wakes_at` of a worker that is at work and need not be woken.
const AWAKE: i64 = i64::MIN;

/// What is known of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerState {
    /// No process has checked yet, or something has changed since.
    Unknown,
    /// A worker is there, or on its way, as far as is known.
    Running,
    /// The extension is not there.
    Absent,
    /// The setting `taskq.background_worker` is off there.
    Off,
    /// Its worker has ended, or none could be started.
    Ended,
}

/// A database and its worker; of a free slot the number of the database is 0.
#[repr(C)]
pub(crate) struct WorkerSlot {
    database: AtomicU32,
    state: AtomicU32,
    latch: AtomicPtr<pg_sys::Latch>,
    wakes_at: AtomicI64,
    /// The earliest time that was told since the last look began.
    told: AtomicI64,
    away_until: AtomicI64,
}

#[repr(C)]
struct Board {
    launcher: AtomicPtr<pg_sys::Latch>,
    /// There were more databases than slots when the launcher last looked.
    full: AtomicBool,
    slots: [WorkerSlot; MOST_DATABASES],
}

/// Set by the postmaster before it forks, so that every backend has it.
static BOARD: AtomicPtr<Board> = AtomicPtr::new(ptr::null_mut());

fn board() -> Option<&'static Board> {
    // SAFETY: null, or shared memory that lives as long as the server, of this layout.
    unsafe { BOARD.load(SeqCst).as_ref() }
}

/// Whether the library is preloaded, and this is no pg_upgrade.
pub(crate) fn is_there() -> bool {
    board().is_some()
}

fn set(latch: &AtomicPtr<pg_sys::Latch>) {
    let latch = latch.load(SeqCst);
    if !latch.is_null() {
        // SAFETY: a latch in a PGPROC, which is in shared memory for ever. If its process has gone by now,
        // the process that has the PGPROC since wakes up needlessly.
        unsafe { pg_sys::SetLatch(latch) };
    }
}

fn my_latch() -> *mut pg_sys::Latch {
    // SAFETY: this process's latch, which is the shared one in its PGPROC by the time this is asked.
    unsafe { pg_sys::MyLatch }
}

/// To be called while the library is preloaded: asks for the memory.
pub(crate) fn request() {
    // SAFETY: hooks are set by the postmaster before it starts anything, each after what was there before.
    unsafe {
        #[cfg(feature = "pg14")]
        pg_sys::RequestAddinShmemSpace(size_of::<Board>());
        #[cfg(not(feature = "pg14"))]
        {
            static mut BEFORE: pg_sys::shmem_request_hook_type = None;
            #[pg_guard]
            unsafe extern "C-unwind" fn on_request() {
                // SAFETY: as Postgres calls a hook.
                unsafe {
                    if let Some(before) = BEFORE {
                        pg_guard_ffi_boundary(|| before());
                    }
                    pg_sys::RequestAddinShmemSpace(size_of::<Board>());
                }
            }
            BEFORE = pg_sys::shmem_request_hook;
            pg_sys::shmem_request_hook = Some(on_request);
        }
        static mut BEFORE: pg_sys::shmem_startup_hook_type = None;
        #[pg_guard]
        unsafe extern "C-unwind" fn on_startup() {
            // SAFETY: as Postgres calls a hook. The memory is all zero when it is new, which is a board
            // without databases. After a crash everything is made anew, and this is called again.
            unsafe {
                if let Some(before) = BEFORE {
                    pg_guard_ffi_boundary(|| before());
                }
                let mut found = false;
                let memory = pg_sys::ShmemInitStruct(c"taskq".as_ptr(), size_of::<Board>(), &mut found);
                if !found {
                    memory.cast::<u8>().write_bytes(0, size_of::<Board>());
                }
                BOARD.store(memory.cast(), SeqCst);
            }
        }
        BEFORE = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(on_startup);
    }
}

/// The slot of a database, if it has one.
pub(crate) fn slot_of(database: pg_sys::Oid) -> Option<&'static WorkerSlot> {
    board()?.slots.iter().find(|slot| slot.database() == database)
}

/// The slot of the database that this process is connected to.
pub(crate) fn my_slot() -> Option<&'static WorkerSlot> {
    // SAFETY: reads a variable.
    slot_of(unsafe { pg_sys::MyDatabaseId })
}

/// Called after a commit that changed the queue of this database, for instance: has its worker look in time for what is `due`.
/// Has the launcher look at a database that had no extension, or that has no slot yet if there were enough of them. Raises no
/// error.
pub(crate) fn tell(due: Wall) {
    let Some(board) = board() else { return };
    match my_slot() {
        Some(slot) => match slot.state() {
            WorkerState::Running if due != Wall::INFINITY => {
                slot.told.fetch_min(due.0, SeqCst);
                if due.0 < slot.wakes_at.load(SeqCst) {
                    set(&slot.latch);
                }
            }
            WorkerState::Absent => {
                slot.set_state(WorkerState::Unknown);
                set(&board.launcher);
            }
            _ => {}
        },
        None if !board.full.load(SeqCst) => set(&board.launcher),
        None => {}
    }
}

impl WorkerSlot {
    /// The database that the slot belongs to; invalid where the slot is free.
    pub(crate) fn database(&self) -> pg_sys::Oid {
        pg_sys::Oid::from(self.database.load(SeqCst))
    }

    /// What is known of the database's worker.
    pub(crate) fn state(&self) -> WorkerState {
        match self.state.load(SeqCst) {
            1 => WorkerState::Running,
            2 => WorkerState::Absent,
            3 => WorkerState::Off,
            4 => WorkerState::Ended,
            _ => WorkerState::Unknown,
        }
    }

    /// Has all sessions know this of the database's worker.
    pub(crate) fn set_state(&self, state: WorkerState) {
        let stored = match state {
            WorkerState::Unknown => 0,
            WorkerState::Running => 1,
            WorkerState::Absent => 2,
            WorkerState::Off => 3,
            WorkerState::Ended => 4,
        };
        self.state.store(stored, SeqCst);
    }

    /// Until when no worker shall be in the database.
    pub(crate) fn away_until(&self) -> Wall {
        Wall(self.away_until.load(SeqCst))
    }

    /// Asks the worker to leave the database, and the launcher to send none before that time.
    pub(crate) fn stay_away_until(&self, time: Wall) {
        self.away_until.fetch_max(time.0, SeqCst);
        set(&self.latch);
    }

    /// Whether a worker is in the database.
    pub(crate) fn is_occupied(&self) -> bool {
        !self.latch.load(SeqCst).is_null()
    }

    /// This process is the database's worker from now on, if there is no other. (A launcher that was started anew may
    /// have sent one where its predecessor had just done so.)
    pub(crate) fn occupy(&self) -> bool {
        if self.latch.compare_exchange(ptr::null_mut(), my_latch(), SeqCst, SeqCst).is_err() {
            return false;
        }
        self.wakes_at.store(AWAKE, SeqCst);
        true
    }

    /// To be called before looking what is due.
    pub(crate) fn begin_look(&self) {
        self.wakes_at.store(AWAKE, SeqCst);
        self.told.store(Wall::INFINITY.0, SeqCst);
        super::latch::reset();
    }

    /// The worker means to sleep until then. Returns until when it may: to what has come during the look, if that is
    /// earlier.
    pub(crate) fn end_look(&self, wakes_at: Wall) -> Wall {
        self.wakes_at.store(wakes_at.0, SeqCst);
        wakes_at.min(Wall(self.told.load(SeqCst)))
    }

    /// This process is the database's worker no more, if it was. The launcher hears of it, also one that has not started
    /// it.
    pub(crate) fn leave(&self) {
        if self.latch.compare_exchange(my_latch(), ptr::null_mut(), SeqCst, SeqCst).is_ok()
            && let Some(board) = board()
        {
            set(&board.launcher);
        }
    }

    fn free(&self) {
        self.database.store(pg_sys::InvalidOid.to_u32(), SeqCst);
    }
}

/// This process is the launcher from now on.
pub(crate) fn launcher_is_here() {
    if let Some(board) = board() {
        board.launcher.store(my_latch(), SeqCst);
    }
}

/// Takes the slots from databases that are none of these, and gives one to each of these as far as there are any. Only for the
/// launcher.
pub(crate) fn slots_for(databases: &[pg_sys::Oid]) -> Vec<&'static WorkerSlot> {
    let Some(board) = board() else { return Vec::new() };
    for slot in &board.slots {
        if slot.database() != pg_sys::InvalidOid && !databases.contains(&slot.database()) {
            slot.free();
        }
    }
    let mut slots = Vec::with_capacity(databases.len());
    for database in databases {
        let slot = slot_of(*database).or_else(|| {
            let slot = slot_of(pg_sys::InvalidOid)?;
            slot.set_state(WorkerState::Unknown);
            slot.latch.store(ptr::null_mut(), SeqCst);
            slot.away_until.store(0, SeqCst);
            slot.database.store(database.to_u32(), SeqCst);
            Some(slot)
        });
        slots.extend(slot);
    }
    board.full.store(slots.len() < databases.len(), SeqCst);
    slots
}
