//! What time makes necessary, done step by step by calls that claim tasks, by the background worker, and by
//! `taskq.maintain()` for quiet times. The kinds of it are in [`Kind`].
//!
//! Rows of tasks that others have locked are passed over. Inserting the run of a schedule may wait for a lock, but not for long.
//! A call that waits, and one in a transaction that may stay open, has what is due done by a process that commits
//! (`background`), if there can be one; but tasks that are due, and that it may be granted, it makes ready itself.

mod by_time;
pub(crate) mod due;
mod elapsed;
mod kind;
mod look;
mod next;
mod owed;
pub(crate) mod parking;
mod retention;
mod step;
pub(crate) mod steps;

pub(crate) use kind::Kind;
pub(crate) use look::{Due, look};
pub(crate) use next::next_task;
pub(crate) use owed::{Next, owed};
pub(crate) use step::{STEP, Step};
pub(crate) use steps::keep_up;
