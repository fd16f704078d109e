//! Flow control: what holds tasks back besides their dependencies. Limits, groups, rates, lanes.

mod actions;
mod attempts;
mod backlogs;
mod dead_ends;
mod defaults;
mod fairness;
mod forget;
mod group_limits;
mod group_limits_concurrent;
mod group_limits_gone;
mod groups;
mod groups_races;
mod known_actions;
mod limits;
mod limits_concurrent;
mod limits_due;
mod limits_old_snapshot;
mod limits_order;
mod notify;
mod pause;
mod priorities_changed;
mod progress;
mod prompt;
mod rate;
mod reset;
mod stress;
mod why;

use taskq_tests::flow::{at, call, count, ids, owned, tasks, wait_for_one};
