//! Notifications of Postgres.

use pgrx::{IntoDatum, direct_function_call, pg_sys};

/// Notifies the listeners of a channel, without a payload, if this transaction commits. A transaction that has done so cannot be
/// prepared.
pub(crate) fn notify(channel: &str) {
    // SAFETY: pg_notify takes two texts, of which the second may be NULL, and returns void.
    unsafe { direct_function_call::<()>(pg_sys::pg_notify, &[channel.into_datum(), None]) };
}
