//! Whether this library and the schema of the database belong together.
//!
//! A session keeps the library that it has loaded, the server the one that is preloaded; the schema is that of CREATE
//! EXTENSION or of the last `ALTER EXTENSION … UPDATE`. So either may be older than the other. The library knows columns by
//! their places: it could read and write beside them, or fail with an internal error in the middle of something.
//!
//! So the schema has a number, in the name of a type (see `sql/schema.sql`), and the library says which numbers it can
//! work with. The system cache has names, and tells when one may have changed; as long as none has, a check is a comparison
//! of two numbers in memory. It is made where [`table`](super::table) opens tables, behind the lock, and before and after
//! statements: an update that comes in between makes the call fail, and what it has written is rolled back.

use std::ffi::{CStr, CString, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

use pgrx::pg_sys;

use super::changes::NAMES;
use super::search_path::Pinned;
use super::throw::throw;

/// The schemas that this library can work with. A release that needs a newer one than the last release had should work
/// with the older one as well wherever that is possible: files are replaced and sessions begin before `ALTER EXTENSION`.
const OLDEST: u32 = 1;
const NEWEST: u32 = 1;

/// As of which change of the catalog they fit; 0: they have not been found to.
static FITS: AtomicU64 = AtomicU64::new(0);

/// Ends the call if the schema is there and is not one that this library can work with.
pub(super) fn check() {
    let as_of = NAMES.version();
    // This backend has one thread.
    if FITS.load(Ordering::Relaxed) == as_of {
        return;
    }
    // SAFETY: a look-up in the system cache by a string that ends with a NUL. Every call of the extension runs in
    // a transaction.
    let schema = unsafe { pg_sys::get_namespace_oid(c"taskq".as_ptr(), true) };
    // Without the schema nothing can be mistaken: opening a table of the queue fails then.
    if schema == pg_sys::InvalidOid {
        return;
    }
    if !(OLDEST..=NEWEST).any(|number| has_number(schema, number)) {
        refuse();
    }
    // The number from before the look-up: a change that it has heard of itself has it asked once more.
    FITS.store(as_of, Ordering::Relaxed);
}

fn has_number(schema: pg_sys::Oid, number: u32) -> bool {
    let Ok(name) = CString::new(format!("_schema_{number}")) else { return false };
    // SAFETY: as above. A composite type has a relation of the same name.
    unsafe { pg_sys::get_relname_relid(name.as_ptr(), schema) != pg_sys::InvalidOid }
}

/// The version that is installed in the database, and the number of its schema.
const INSTALLED: &CStr = c"SELECT e.extversion, (SELECT max(substring(c.relname::text FROM '[0-9]+$')::int)
                              FROM pg_catalog.pg_class AS c
                             WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'taskq')
                               AND c.relkind = 'c' AND c.relname ~ '^_schema_[0-9]{1,6}$')
        FROM pg_catalog.pg_extension AS e WHERE e.extname = 'taskq'";

/// Asked for a refusal only, and so not a [`Statement`](super::statement::Statement), which would have all of this checked
/// first.
fn installed() -> Option<(String, Option<u32>)> {
    let _path = Pinned::begin();
    // SAFETY: the query reads catalogs, with a snapshot that is taken for it. What it returns is copied before the SPI frame
    // is closed. An error in between closes the frame, and drops the snapshot, with the (sub)transaction.
    unsafe {
        pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
        if pg_sys::SPI_connect() != pg_sys::SPI_OK_CONNECT as i32
            || pg_sys::SPI_execute(INSTALLED.as_ptr(), true, 1) != pg_sys::SPI_OK_SELECT as i32
        {
            pgrx::error!("SPI failed");
        }
        let table = pg_sys::SPI_tuptable;
        let text = |column: c_int| {
            let value = pg_sys::SPI_getvalue(*(*table).vals, (*table).tupdesc, column);
            (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
        };
        let found = (pg_sys::SPI_processed > 0).then(|| (text(1), text(2)));
        pg_sys::SPI_finish();
        pg_sys::PopActiveSnapshot();
        let (version, number) = found?;
        Some((version?, number.and_then(|number| number.parse().ok())))
    }
}

fn refuse() -> ! {
    let installed = installed();
    let version = env!("CARGO_PKG_VERSION");
    let able =
        if OLDEST == NEWEST { format!("schema {NEWEST}") } else { format!("schemas {OLDEST} to {NEWEST}") };
    let (theirs, number) = match &installed {
        Some((theirs, Some(number))) => (theirs.as_str(), format!("with schema {number}")),
        Some((theirs, None)) => (theirs.as_str(), "whose schema has no number".to_owned()),
        None => ("of no version", "whose schema has no number".to_owned()),
    };
    let newer = matches!(installed, Some((_, Some(number))) if number > NEWEST);
    let hint = if newer {
        format!(
            "Connect anew, or restart the server if it preloads the library; install the files of version {theirs} first \
             if they are not."
        )
    } else {
        "Run ALTER EXTENSION taskq UPDATE in this database.".to_owned()
    };
    throw(
        "55000",
        "the library of extension \"taskq\" does not fit its schema in this database",
        &format!(
            "The library is version {version}, for {able}; the extension in the database is version {theirs}, {number}."
        ),
        &hint,
    )
}
