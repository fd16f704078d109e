//! Digests, by the server's own functions.

use pgrx::{FromDatum, IntoDatum, direct_function_call, pg_sys};

/// The SHA-256 of a text in hexadecimal digits.
pub(crate) fn sha256(text: &str) -> String {
    // SAFETY: sha256_bytea takes a bytea, which is what a byte slice becomes, and has no other inputs.
    let digest: Option<Vec<u8>> =
        unsafe { direct_function_call(pg_sys::sha256_bytea, &[text.as_bytes().into_datum()]) };
    digest.unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What `hashtextextended(text COLLATE "C", seed)` gives.
pub(crate) fn hash(text: &str, seed: i64) -> i64 {
    let (Some(text), Some(seed)) = (text.into_datum(), seed.into_datum()) else { return 0 };
    // SAFETY: a function that takes a text and a bigint, and returns a bigint.
    unsafe {
        let hash = pg_sys::OidFunctionCall2Coll(
            pg_sys::F_HASHTEXTEXTENDED.into(),
            pg_sys::C_COLLATION_OID,
            text,
            seed,
        );
        i64::from_datum(hash, false).unwrap_or(0)
    }
}
