//! Tests of taskq from outside: what any client sees over an ordinary connection.
//!
//! The tests live in `tests/<area>/`, one test program per area; this library is their harness.
//!
//! * [`db`]: a database of its own for a test, made from a template unless it says otherwise, and dropped at the end or by the next program.
//! * [`cluster`]: a cluster of its own, for what concerns the whole server.
//! * [`session`]: one connection, with methods for the operations that many tests need.
//! * [`full`]: a queue with tasks in every state, to be carried elsewhere.
//! * [`refusal`]: a refused call reports all three parts of an error and changes nothing.
//! * [`notifications`]: what has been notified.
//! * [`concurrent`]: running a call on another connection, and seeing whether it waits.
//! * [`model`]: what the contract says of the core operations, in memory, small enough to be seen to be right.
//! * [`ops`]: random operations, done to the queue and to the model.
//! * [`sleeper`]: a call that sleeps, and what ends its sleep.
//! * [`flow`]: what tests of flow control have in common.
//! * [`random`]: numbers for random work on several connections.
//!
//! The server is found by `PGHOST`, `PGPORT` and `PGUSER` (a superuser); it should be a private one, because the
//! tests create databases and roles. A database with the extension is checked with `taskq.check()` when its test ends well.
//!
//! Many tests wait for each other's connections rather than compute: `RUST_TEST_THREADS=6` suits a machine of two cores, and is
//! what `.ci/test.sh` sets.
//! `TASKQ_TEST_SOAK=20` makes random ones (`model`, `storm`) that many times as long.

pub mod cluster;
pub mod concurrent;
pub mod db;
pub mod flow;
pub mod full;
pub mod model;
pub mod notifications;
pub mod ops;
pub mod random;
pub mod refusal;
pub mod session;
pub mod sleeper;

pub use cluster::Cluster;
pub use concurrent::{Background, Progress, until};
pub use db::{Db, let_databases_stay};
pub use notifications::{listen, notifications};
pub use refusal::{refused, sqlstate, state_of_all};
pub use session::{Answer, Grant, Session, Settled, Task};
