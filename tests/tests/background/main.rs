//! The optional background worker: with `shared_preload_libraries = 'taskq'` things happen on time without a call, and
//! the worker is in the way of no session.
//!
//! Each test has a cluster of its own. Sessions in here look at views only: whatever happens to the queue, the worker
//! has done it.

mod called;
mod chores;
mod cluster;
mod ends;
mod launcher;
mod owner;
mod room;
