//! `replace_tasks`: an existing task goes as though it were aborted just before, and the new one starts afresh.
//!
//! A replace that updates the row in place keeps the old one's tries, dependencies, times and dependents, and fails
//! here.

mod old;
mod old_snapshot;
mod races;
mod refused;
