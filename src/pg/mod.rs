//! Wrappers around Postgres' internals, with the unsafe code of this library: where it stands, a comment says why it is sound.

// Denied elsewhere (see lib.rs), except to the macros of this folder where they are used.
#![allow(unsafe_code)]

pub(crate) mod arg;
pub(crate) mod block;
pub(crate) mod caller;
pub(crate) mod changes;
pub(crate) mod clock;
mod descriptor;
pub(crate) mod digest;
pub(crate) mod extension;
mod fit;
pub(crate) mod json;
#[cfg(any(test, feature = "pg_test"))]
pub(crate) mod kept;
pub(crate) mod last_call;
pub(crate) mod latch;
pub(crate) mod lock;
mod lookup;
pub(crate) mod memory;
pub(crate) mod named;
pub(crate) mod newtype;
pub(crate) mod notify;
pub(crate) mod planner;
pub(crate) mod post;
pub(crate) mod procedure;
pub(crate) mod process;
mod query;
mod quiet;
pub(crate) mod row_version;
pub(crate) mod rows;
pub(crate) mod search_path;
pub(crate) mod sequence;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod statement;
pub(crate) mod subtransaction;
pub(crate) mod table;
pub(crate) mod table_changes;
pub(crate) mod throw;
pub(crate) mod transaction;
pub(crate) mod uncommitted;
pub(crate) mod wait_event;
