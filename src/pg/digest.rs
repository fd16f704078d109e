//! Digests, by the server's own functions.

use pgrx::{IntoDatum, direct_function_call, pg_sys};

/// The SHA-256 of a text in hexadecimal digits.
pub(crate) fn sha256(text: &str) -> String {
    // SAFETY: sha256_bytea takes a bytea, which is what a byte slice becomes, and has no other inputs.
    let digest: Option<Vec<u8>> =
        unsafe { direct_function_call(pg_sys::sha256_bytea, &[text.as_bytes().into_datum()]) };
    digest.unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect()
}
