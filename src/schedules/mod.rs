//! Schedules: tasks that are inserted when a cron expression says so.
//!
//! There is no scheduler process. Calls that claim tasks, outside of transactions that may stay open, the background worker and
//! `maintain` insert the runs that are due. `schedule` inserts what is due by the times that it replaces. A run's id is
//! made of the schedule's name and its time, so that one which is there is not inserted again.

mod cron;
mod due;
mod expression;
mod fire;
mod on_demand;
mod set;
mod zone;

pub(crate) use cron::Calendar;
pub(crate) use due::{next_after, next_at};
pub(crate) use fire::{fire_due, missing};
pub(crate) use on_demand::run_now;
pub(crate) use set::{New, set};
