//! Raising an error with a SQLSTATE of our own: pgrx's list of codes is closed. And notices with DETAIL and HINT.

use std::ffi::CString;
use std::panic::UnwindSafe;

use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgTryBuilder, pg_sys};

/// Ends the current call with an error that the client sees with these fields.
pub(crate) fn throw(sqlstate: &str, message: &str, detail: &str, hint: &str) -> ! {
    report(pg_sys::PGERROR, sqlstate, message, detail, hint);
    unreachable!("an error was raised")
}

/// Ends the current call as a statement ends that finds a row changed which its transaction may not see changed.
pub(crate) fn serialization_failure() -> ! {
    throw("40001", "could not serialize access due to concurrent update", "", "")
}

/// Sends the client a notice, unless its `client_min_messages` leaves these out, and goes on.
pub(crate) fn notice(message: &str, detail: &str, hint: &str) {
    report(pg_sys::NOTICE, "00000", message, detail, hint);
}

/// What a function of Postgres makes of its input; `None` if it refuses that: a value that is wrong (class 22), or too large
/// or too deep (54; or XX000, where it would ask for a gigabyte of memory at once). All other errors are none of the input's, and go on.
///
/// For what reads no tables and takes no locks: what is caught is not rolled back.
pub(crate) fn unless_refused<T>(work: impl FnOnce() -> Option<T> + UnwindSafe) -> Option<T> {
    PgTryBuilder::new(work)
        .catch_others(|caught| match &caught {
            CaughtError::PostgresError(report) if is_refusal(report.sql_error_code() as i32) => None,
            _ => caught.rethrow(),
        })
        .execute()
}

fn is_refusal(code: i32) -> bool {
    let class = code & 0xfff;
    class == encode("22") || class == encode("54") || code == encode("XX000")
}

/// Writes to the server's log, and nothing to the client.
pub(crate) fn log(message: &str, detail: &str, hint: &str) {
    report(pg_sys::LOG_SERVER_ONLY, "00000", message, detail, hint);
}

fn report(level: u32, sqlstate: &str, message: &str, detail: &str, hint: &str) {
    // SAFETY: the struct is zeroed (every field of it may be), the strings outlive the call, and
    // ThrowErrorData copies them into Postgres' error memory before it jumps, or returns if the level is no
    // error. pgrx turns that jump into a Rust panic, so destructors of the callers run.
    unsafe {
        let mut data: pg_sys::ErrorData = std::mem::zeroed();
        let (message, detail, hint) = (pg_string(message), pg_string(detail), pg_string(hint));
        data.elevel = level as i32;
        data.sqlerrcode = encode(sqlstate);
        data.message = message;
        data.detail = detail;
        data.hint = hint;
        data.assoc_context = pg_sys::CurrentMemoryContext;
        pg_sys::ThrowErrorData(&mut data);
    }
}

/// A copy in Postgres' memory; NULL for an empty string, which leaves the field out.
fn pg_string(text: &str) -> *mut std::ffi::c_char {
    if text.is_empty() {
        return std::ptr::null_mut();
    }
    let text = CString::new(text.replace('\0', "")).unwrap_or_default();
    // SAFETY: pstrdup copies a NUL-terminated string.
    unsafe { pg_sys::pstrdup(text.as_ptr()) }
}

/// Five characters packed six bits each, as MAKE_SQLSTATE does.
fn encode(sqlstate: &str) -> i32 {
    sqlstate
        .bytes()
        .enumerate()
        .fold(0, |code, (i, c)| code | ((i32::from(c) - i32::from(b'0')) & 0x3f) << (6 * i))
}

#[cfg(test)]
mod tests {
    use super::{encode, is_refusal};

    #[test]
    fn codes_are_packed_as_postgres_packs_them() {
        assert_eq!(encode("00000"), 0);
        assert_eq!(
            encode("22023"),
            pgrx::pg_sys::errcodes::PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE as i32
        );
    }

    #[test]
    fn what_is_wrong_with_the_input_is_told_from_what_is_wrong_with_the_server() {
        for code in ["22P02", "22003", "22P05", "22008", "54000", "54001", "XX000"] {
            assert!(is_refusal(encode(code)), "{code}");
        }
        for code in ["53200", "57014", "57P01", "58030", "42501", "2D000"] {
            assert!(!is_refusal(encode(code)), "{code}");
        }
    }
}
