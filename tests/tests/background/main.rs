//! The background worker: called by a call that sleeps, or kept by the server for a database that `taskq.databases` names; and that it
//! is in the way of no session.
//!
//! Tests share clusters where they can. Sessions in here look at views only: whatever happens to the queue, the worker
//! has done it.

mod called;
mod cluster;
mod ends;
mod owner;
mod shared;
mod stays;
