//! Limits of concurrency and of rate, of actions and of groups, and the turns that groups take.

mod fairness;
mod group_limits;
mod group_limits_concurrent;
mod group_limits_gone;
mod limits;
mod limits_due;
mod limits_old_snapshot;
mod limits_order;
mod rate;

use taskq_tests::flow::{at, call, count, ids, owned, tasks, wait_for_one};
