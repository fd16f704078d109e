//! What a background process needs: to be registered, to connect, to sleep, and to survive errors.

use std::ffi::{CStr, CString};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime,
    DynamicBackgroundWorker, SignalWakeFlags,
};
use pgrx::prelude::*;
use pgrx::{IntoDatum, PgMemoryContexts, PgTryBuilder};

use super::clock::Wall;
use super::wait_event::Sleep;
use super::{caller, extension};

/// Whether the library is being loaded at the start of the server.
pub(crate) fn is_preloading() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// Whether this is a server that pg_upgrade has started, which wants to be alone.
pub(crate) fn is_upgrade() -> bool {
    // SAFETY: reads a variable.
    unsafe { pg_sys::IsBinaryUpgrade }
}

/// What a background process runs: `main!(symbol, body)` exports the symbol, by which the server finds it, and passes
/// on to `body` the database that the process was started for ([`start_worker`]); invalid for one that [`register`] names.
macro_rules! main {
    ($symbol:ident, $body:path) => {
        /// The life of a background process, as Postgres starts it.
        #[::pgrx::pg_guard]
        // SAFETY: the prefix `taskq_` is this library's; the compiler sees to it that a name stands once in it.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $symbol(argument: ::pgrx::pg_sys::Datum) {
            $body(::pgrx::pg_sys::Oid::from(argument.value() as u32))
        }
    };
}
pub(crate) use main;

/// How soon the postmaster starts a process again that it keeps, if that ends.
const RESTART: Duration = Duration::from_secs(5);

/// Has the postmaster keep a process for the database of this name, once the server may write: on a standby that is when it is
/// promoted.
pub(crate) fn register(kind: &str, function: &str, database: &str) {
    described(kind, function, database)
        .set_restart_time(Some(RESTART))
        .set_argument(pg_sys::InvalidOid.into_datum())
        .set_extra(database)
        .load();
}

fn described(kind: &str, function: &str, database: &str) -> BackgroundWorkerBuilder {
    BackgroundWorkerBuilder::new(&format!("{kind} for database {database}"))
        .set_type(kind)
        .set_library("taskq")
        .set_function(function)
        .enable_shmem_access(None)
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
}

/// A worker that this process has started.
pub(crate) struct Started(DynamicBackgroundWorker);

/// Starts a worker for a database; `None` if the server has no room for another (`max_worker_processes`).
///
/// It gets the number of the database, and no setting and no rights of this session.
pub(crate) fn start_worker(kind: &str, function: &str, database: pg_sys::Oid) -> Option<Started> {
    let start = || {
        described(kind, function, &database.to_u32().to_string())
            .set_restart_time(None)
            .set_argument(database.into_datum())
            .load_dynamic()
            .ok()
    };
    // SAFETY: the context lives as long as the process. Postgres' handle has to: it is asked later, from other statements. It
    // has some bytes, and is never given back.
    let start = || unsafe { PgMemoryContexts::TopMemoryContext.switch_to(|_| start()) };
    caller::as_session_user(start).map(Started)
}

impl Started {
    /// Whether it has ended, or never came up; also once the postmaster has died.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.0.pid(), Err(BackgroundWorkerStatus::Stopped | BackgroundWorkerStatus::PostmasterDied))
    }
}

/// Whether this session may start a worker for its database: the server runs and writes, this is no process that works for
/// another one, and the database is one that is worked in.
pub(crate) fn may_start_workers() -> bool {
    // SAFETY: reads variables and shared memory.
    let here = unsafe {
        pg_sys::IsUnderPostmaster
            && !pg_sys::IsBinaryUpgrade
            && pg_sys::ParallelWorkerNumber < 0
            && !pg_sys::InitializingParallelWorker
            && !pg_sys::RecoveryInProgress()
    };
    here && is_worked_in()
}

/// Whether this database allows connections and is no template.
fn is_worked_in() -> bool {
    // SAFETY: a look-up in the system cache, in a transaction; the tuple is of pg_database, and is read before it is released.
    unsafe {
        let database = pg_sys::Datum::from(pg_sys::MyDatabaseId);
        let cache = pg_sys::SysCacheIdentifier::DATABASEOID as std::ffi::c_int;
        let tuple = pg_sys::SearchSysCache1(cache, database);
        if tuple.is_null() {
            return false;
        }
        let row = pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_database>(tuple);
        let worked_in = (*row).datallowconn && !(*row).datistemplate;
        pg_sys::ReleaseSysCache(tuple);
        worked_in
    }
}

/// Sets the latches of the other background processes of this database, whatever they are: one that is woken for nothing
/// sleeps again. (A process outside of a transaction is not to be found by a lock, as [`super::latch`] does it.)
pub(crate) fn wake_workers() {
    // SAFETY: reads a variable.
    let here = unsafe { pg_sys::MyDatabaseId };
    wake_workers_of(|database| database == here);
}

/// The same of those of all databases.
pub(crate) fn wake_all_workers() {
    wake_workers_of(|database| database != pg_sys::InvalidOid);
}

/// Of the array of all processes the first part is for connections, however many there may be, and is left out.
fn wake_workers_of(which: impl Fn(pg_sys::Oid) -> bool) {
    // SAFETY: the array of all processes is in shared memory and stays there, as do their latches; two fields of each are read
    // that others may write. The latch of one that has ended by now has no owner, or another one. The array has room for
    // connections first, then for other processes with a number of their own (`InitProcGlobal`).
    unsafe {
        let all = &*pg_sys::ProcGlobal;
        for n in
            pg_sys::MaxConnections as usize..(pg_sys::MaxBackends as usize).min(all.allProcCount as usize)
        {
            let process = all.allProcs.add(n);
            #[cfg(feature = "pg18")]
            let is_worker = !(&raw const (*process).isRegularBackend).read_volatile();
            #[cfg(not(feature = "pg18"))]
            let is_worker = (&raw const (*process).isBackgroundWorker).read_volatile();
            let database = (&raw const (*process).databaseId).read_volatile();
            if is_worker && which(database) && process != pg_sys::MyProc {
                pg_sys::SetLatch(&raw mut (*process).procLatch);
            }
        }
    }
}

/// The database that this process is connected to.
pub(crate) fn my_database() -> pg_sys::Oid {
    // SAFETY: reads a variable.
    unsafe { pg_sys::MyDatabaseId }
}

/// How many background processes the server has room for.
pub(crate) fn most_workers() -> u32 {
    // SAFETY: reads a variable that is set at server start.
    u32::try_from(unsafe { pg_sys::max_worker_processes }).unwrap_or(0)
}

// SAFETY: declared as in the header.
unsafe extern "C-unwind" {
    /// tcop/tcopprot.h. pgrx's wrapper of it is not made for a signal handler.
    fn die(signal: std::ffi::c_int);
}

/// Connects this process to its database; to that which [`register`] has named, if the number is none. From here on it can be asked
/// to end (SIGTERM, also in the middle of a statement) and to read its settings anew (SIGHUP).
pub(crate) fn connect(database: pg_sys::Oid) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    let name = CString::new(BackgroundWorker::get_extra()).unwrap_or_default();
    // SAFETY: Postgres' own handler, made for processes that check for interrupts as this one does. The
    // connection is made once, by the process that Postgres started for it.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(die));
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(pg_sys::SIGTERM as i32, Some(die));
        if database == pg_sys::InvalidOid {
            pg_sys::BackgroundWorkerInitializeConnection(name.as_ptr(), std::ptr::null(), 0);
        } else {
            pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0);
        }
    }
}

/// Makes this process run as the user that it has connected as, the first superuser, whatever role is set for the
/// database or for that user. It also gets [`OWN_SETTINGS`]: what is set of these for the database or for the user is not
/// meant for this session, and roles that are no superusers may set most of it.
pub(crate) fn begin_session() {
    // SAFETY: that user is the one that the process was authenticated as, so that nothing has to be looked up.
    unsafe {
        pg_sys::SetSessionAuthorization(pg_sys::Oid::from(pg_sys::BOOTSTRAP_SUPERUSERID), true);
    }
    for (name, value) in OWN_SETTINGS {
        set(name, value);
    }
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    set(c"transaction_timeout", c"0");
}

/// Settings of a background process that has a database.
const OWN_SETTINGS: [(&CStr, &CStr); 18] = [
    (c"role", c"none"),
    (c"lock_timeout", c"500ms"),
    (c"statement_timeout", c"0"),
    (c"idle_in_transaction_session_timeout", c"0"),
    (c"default_transaction_read_only", c"off"),
    (c"default_transaction_deferrable", c"off"),
    (c"default_transaction_isolation", c"read committed"),
    (c"session_replication_role", c"origin"),
    (c"search_path", c"pg_catalog, pg_temp"),
    (c"row_security", c"off"),
    (c"plan_cache_mode", c"auto"),
    (c"array_nulls", c"on"),
    (c"transform_null_equals", c"off"),
    (c"bytea_output", c"hex"),
    (c"DateStyle", c"ISO, MDY"),
    (c"IntervalStyle", c"postgres"),
    (c"TimeZone", c"UTC"),
    (c"application_name", c"taskq worker"),
];

/// Sets a setting of this session, as its user would.
fn set(name: &CStr, value: &CStr) {
    // SAFETY: two strings; raises an error if there is no such setting.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_SESSION,
        );
    }
}

/// Whether the process has been asked to end.
pub(crate) fn asked_to_end() -> bool {
    // SAFETY: reads a variable that the signal handler sets.
    unsafe { (&raw const pg_sys::ProcDiePending).read_volatile() != 0 }
}

/// Whether the process was told to read its settings anew since the last time this was asked.
pub(crate) fn settings_changed() -> bool {
    BackgroundWorker::sighup_received()
}

/// Reads the settings anew.
pub(crate) fn read_settings() {
    // SAFETY: the process is between transactions.
    unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
}

/// Ends the process.
#[allow(unreachable_code)]
pub(crate) fn end(code: i32) -> ! {
    // SAFETY: runs the callbacks and does not come back, which the bindings for PostgreSQL 18 do not say.
    unsafe { pg_sys::proc_exit(code) };
    std::process::abort()
}

/// Sleeps until the latch is set, or the time is over, or the process is to end.
pub(crate) fn sleep(time: Duration, why: Sleep) {
    let shown = why.event();
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: this process's own latch. Interrupts are handled outside of transactions here; the request to
    // end is left to the caller, which ends without a complaint in the log.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            events as i32,
            time.as_millis().min(i32::MAX as u128) as std::ffi::c_long,
            shown,
        );
    }
    if !asked_to_end() {
        pgrx::check_for_interrupts!();
    }
}

/// How long to sleep for something that is due then.
pub(crate) fn until(time: Wall) -> Duration {
    // Rounded up, so as not to wake a moment too early.
    Duration::from_millis(super::clock::wall().until(time).as_micros().div_ceil(1000) as u64)
}

/// What went wrong in a transaction.
pub(crate) struct Failure {
    /// The message of the error, as the log has it.
    pub(crate) message: String,
    /// Another transaction held what the work needed.
    pub(crate) busy: bool,
}

/// Runs `work` in a transaction of its own. An error in it aborts the transaction, and nothing else. The user that `work`
/// has made of this process ([`extension::Held::be_owner`]) it is to the end of the commit, and no longer.
pub(crate) fn transaction<T>(activity: &CStr, work: impl FnOnce() -> T) -> Result<T, Failure> {
    let work = AssertUnwindSafe(work);
    // SAFETY: begun, given a snapshot and committed as any command of a client. After an error the abort
    // cleans up all that the transaction held, snapshot and SPI included, as the main loop of a backend does
    // it. The error itself stays on Postgres' stack of errors meanwhile, from which `execute` takes it when the handler is
    // through.
    unsafe {
        PgTryBuilder::new(|| {
            let work = work;
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, activity.as_ptr());
            let result = (work.0)();
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
            extension::be_session_user();
            idle();
            Ok(result)
        })
        .catch_others(|error| {
            pg_sys::AbortCurrentTransaction();
            idle();
            Err(failure(&error))
        })
        .catch_rust_panic(|error| {
            pg_sys::AbortCurrentTransaction();
            idle();
            Err(failure(&error))
        })
        .execute()
    }
}

fn failure(error: &pg_sys::panic::CaughtError) -> Failure {
    use pg_sys::errcodes::PgSqlErrorCode as Code;
    use pg_sys::panic::CaughtError;
    let (CaughtError::PostgresError(report)
    | CaughtError::ErrorReport(report)
    | CaughtError::RustPanic { ereport: report, .. }) = error;
    let busy = matches!(
        report.sql_error_code(),
        Code::ERRCODE_LOCK_NOT_AVAILABLE | Code::ERRCODE_T_R_DEADLOCK_DETECTED
    );
    Failure { message: report.message().to_owned(), busy }
}

fn idle() {
    // SAFETY: between transactions, where statistics are reported.
    unsafe {
        pg_sys::pgstat_report_stat(false);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    }
}
