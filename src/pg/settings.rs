//! Settings whose values are checked: texts that must be well-formed, and numbers that may not be 0.

use std::ffi::{CStr, CString, c_char, c_void};

use pgrx::pg_sys;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

/// What a text must be to be taken.
pub(crate) trait Check {
    /// What is wrong with the text, as a sentence.
    fn check(text: &str) -> Result<(), String>;
    /// What to do about it.
    const HINT: &'static str;
}

/// Declares a setting that any user may set to a text which `C` takes.
pub(crate) fn define_text<C: Check>(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<Option<CString>>,
) {
    // SAFETY: the hook turns what panics into an error of Postgres, and keeps to what a check hook may do: it looks at
    // the new value and sets the fields of the message.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            name,
            short,
            long,
            setting,
            GucContext::Userset,
            GucFlags::default(),
            Some(check_text::<C>),
            None,
            None,
        );
    }
}

/// Declares a setting that superusers, and roles with that right, may set to an integer from `least` up, but not to
/// 0.
pub(crate) fn define_count_but_zero(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<i32>,
    least: i32,
) {
    // SAFETY: as above.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            name,
            short,
            long,
            setting,
            least,
            i32::MAX,
            GucContext::Suset,
            GucFlags::default(),
            Some(check_not_zero),
            None,
            None,
        );
    }
}

unsafe extern "C-unwind" fn check_text<C: Check>(
    value: *mut *mut c_char,
    _: *mut *mut c_void,
    _: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: Postgres passes a pointer to a C string, or to NULL.
    let text = unsafe {
        if value.is_null() || (*value).is_null() {
            return true;
        }
        CStr::from_ptr(*value).to_string_lossy().into_owned()
    };
    // SAFETY: nothing in the closure is on Postgres' stack when it panics.
    unsafe {
        pg_sys::panic::pgrx_extern_c_guard(move || match C::check(&text) {
            Ok(()) => true,
            Err(what) => {
                explain(&what, C::HINT);
                false
            }
        })
    }
}

unsafe extern "C-unwind" fn check_not_zero(
    value: *mut std::ffi::c_int,
    _: *mut *mut c_void,
    _: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: Postgres passes a pointer to the new value.
    if unsafe { *value } != 0 {
        return true;
    }
    // SAFETY: as above.
    unsafe {
        pg_sys::panic::pgrx_extern_c_guard(|| {
            explain("0 tries are none.", "Give an integer from 1 up, or -1 for no limit.");
            false
        })
    }
}

/// The DETAIL and the HINT of the error that Postgres raises when the hook refuses.
fn explain(detail: &str, hint: &str) {
    let copy = |text: &str| {
        let text = CString::new(text.replace('\0', "")).unwrap_or_default();
        // SAFETY: ErrorContext is where Postgres' own macros put these; it copies the string.
        unsafe { pg_sys::MemoryContextStrdup(pg_sys::ErrorContext, text.as_ptr()) }
    };
    // SAFETY: Postgres has set both to NULL before it called the hook, and reads them after it.
    unsafe {
        pg_sys::GUC_check_errdetail_string = copy(detail);
        pg_sys::GUC_check_errhint_string = copy(hint);
    }
}
