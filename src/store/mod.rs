//! Statements on the tables that more than one verb needs: names of actions, live rows and the order in which
//! they are locked, ready rows.

pub(crate) mod action_setting;
pub(crate) mod actions;
pub(crate) mod aside;
pub(crate) mod attempts;
pub(crate) mod before_commit;
pub(crate) mod behind;
pub(crate) mod bucket;
pub(crate) mod costly;
pub(crate) mod decided;
pub(crate) mod dependency;
pub(crate) mod guard;
pub(crate) mod known_lanes;
pub(crate) mod lease;
pub(crate) mod live;
pub(crate) mod merge_key;
pub(crate) mod notify;
pub(crate) mod numbers;
pub(crate) mod order;
pub(crate) mod parked;
pub(crate) mod progress;
pub(crate) mod ready;
pub(crate) mod ready_now;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod scheduled;
pub(crate) mod settled;
pub(crate) mod signal;
pub(crate) mod slot;
pub(crate) mod tables;
pub(crate) mod tally;
pub(crate) mod task;
pub(crate) mod task_group;
pub(crate) mod touched;
pub(crate) mod unique_key;
pub(crate) mod workgroup;
