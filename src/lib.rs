//! taskq: a dependable task queue, with dependencies between tasks, inside PostgreSQL.
//!
//! # Bird's-eye view
//!
//! The state is in ordinary tables (`sql/schema.sql`); a task's state is *where its rows are*. A function that the reference describes
//! is a thin extern in `verbs`, and its work goes by the tables directly or by kept, generic plans; others, such as some that
//! look, and those for rights, are written in SQL (`sql/`). A waiting call is woken by the commit that concerns it; its own
//! looks, at growing intervals, make up for a wake-up that the server loses. What is to happen in time while no call claims is for a
//! background process.
//!
//! Which module is for what, and which may use which, is in docs/architecture.md, section 2; `tests/rules` holds it.
//!
//! # Invariants
//!
//! - Every task, as others see it, has one row in `task` and exactly one in `run`, `blocked`, `scheduled`, `parked`
//!   or `settled`.
//! - Positions are taken after the transaction has its id; once a grant is committed, its entry does not become
//!   grantable again at its old position. `claim::marks` rests on that.
//! - Claims, signals and upkeep pass over rows of tasks that other transactions have locked. Two waits are bounded: inserting
//!   the run of a schedule waits 10 ms for each lock, and a transaction that has locked the counter of a waiting task, or
//!   left a signal for one, may wait before its commit for commits under way, five seconds at most.
//! - From one transaction to the next a backend keeps plans and hints, not state: an abort leaves nothing wrong. `memory` has what
//!   it believes, in one list with what ends that.

#![deny(unsafe_code)]

use pgrx::prelude::*;

mod allowance;
mod background;
mod claim;
mod clock;
mod ends;
mod error;
mod flow;
mod graph;
mod guc;
mod input;
mod insert;
mod locks;
mod memory;
mod number;
mod pg;
mod recount;
mod remove;
mod returns;
mod revive;
mod rights;
mod schedules;
mod settle;
mod state;
mod store;
mod token;
mod upkeep;
mod verbs;
mod wake;
mod words;

pgrx::pg_module_magic!();

#[cfg(not(panic = "unwind"))]
compile_error!("Postgres errors travel through Rust as panics: build with panic = \"unwind\"");

/// Called by Postgres when the library is loaded.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    pg::memory::init();
    pg::planner::init();
    guc::init();
    background::init();
}

#[cfg(any(test, feature = "pg_test"))]
#[path = "../pg_test/mod.rs"]
pub mod pg_test;

// What `#[pg_test]` makes of a test calls `pgrx_tests::run_test`: that is ours, and the crate of that name is not needed.
#[cfg(test)]
extern crate self as pgrx_tests;
#[cfg(test)]
pub use pg_test::run_test;
