//! Tests that run inside a server, one file per area; the name of a test says what it claims.
//!
//! Each runs in a transaction of its own that is rolled back, so that every test may use the same ids and
//! actions. For the same reason nothing here tells what another session sees: that is for `tests/`.
//! Uncommitted ids of one test would block another, so they run one at a time (`RUST_TEST_THREADS=1`).
//!
//! The library is built with the feature `pg_test` (`taskq_pg_test` in Cargo.toml), in which each test is a C function, and
//! installed into a private copy of the server that nothing else uses. `run` calls them there. `.ci/test.sh` does all that.
//!
//! The Rust name of a test is its name in SQL as well: unique in the crate, and at most 63 bytes.
#![allow(missing_docs)]

mod api_surface;
mod check;
mod columns;
mod dependencies;
mod insert;
mod keeping;
mod memory;
mod operating;
mod own;
mod plans;
mod queue;
mod replace;
mod returns;
mod rights;
mod spontaneous;
mod unique;

#[cfg(test)]
mod run;
#[cfg(test)]
pub use run::run_test;

/// Called by what `#[pg_test]` makes of a test, before it is run.
pub fn setup(_options: Vec<&str>) {}

/// Handed on by `#[pg_test]`. The settings of the server are in `.ci/test.sh`.
#[must_use]
pub fn postgresql_conf_options() -> Vec<&'static str> {
    Vec::new()
}
