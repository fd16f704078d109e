//! Raising an error with a SQLSTATE of our own: pgrx's list of codes is closed. And notices with DETAIL and HINT.

use std::ffi::CString;

use pgrx::pg_sys;

/// Ends the current call with an error that the client sees with these fields.
pub(crate) fn throw(sqlstate: &str, message: &str, detail: &str, hint: &str) -> ! {
    report(pg_sys::PGERROR, sqlstate, message, detail, hint);
    unreachable!("an error was raised")
}

/// Ends the current call as a statement ends that finds a row changed which its transaction may not see changed.
pub(crate) fn serialization_failure() -> ! {
    throw("40001", "could not serialize access due to concurrent update", "", "")
}

/// Tells the client something, at once, and goes on.
pub(crate) fn notice(message: &str, detail: &str, hint: &str) {
    report(pg_sys::NOTICE, "00000", message, detail, hint);
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
    use super::encode;

    #[test]
    fn codes_are_packed_as_postgres_packs_them() {
        assert_eq!(encode("00000"), 0);
        assert_eq!(
            encode("22023"),
            pgrx::pg_sys::errcodes::PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE as i32
        );
    }
}
