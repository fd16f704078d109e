//! The tables: most of the statements that write to them are here. Also the live rows of tasks, whichever table they are in, and what a
//! backend remembers of tables.
//!
//! Most statements are in the file or folder of the table that they write to.

pub(crate) mod action_setting;
pub(crate) mod actions;
pub(crate) mod announce;
pub(crate) mod aside;
pub(crate) mod attempts;
pub(crate) mod behind;
pub(crate) mod blocked;
pub(crate) mod bucket;
pub(crate) mod by_time;
pub(crate) mod contradiction;
pub(crate) mod countdown;
pub(crate) mod decided;
pub(crate) mod dependency;
pub(crate) mod ends;
pub(crate) mod expiry;
pub(crate) mod freed;
pub(crate) mod graph_guard;
pub(crate) mod known_actions;
pub(crate) mod known_lanes;
pub(crate) mod lease;
pub(crate) mod live;
pub(crate) mod live_row;
pub(crate) mod low_ends;
pub(crate) mod merge_key;
pub(crate) mod notify;
pub(crate) mod numbers;
pub(crate) mod parked;
pub(crate) mod positions;
pub(crate) mod progress;
pub(crate) mod ready;
pub(crate) mod ready_now;
pub(crate) mod reason;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod scheduled;
pub(crate) mod seal;
pub(crate) mod settled;
pub(crate) mod sizes;
pub(crate) mod slot;
pub(crate) mod step;
pub(crate) mod tally;
pub(crate) mod task;
pub(crate) mod task_group;
pub(crate) mod traces;
pub(crate) mod unique_key;
pub(crate) mod workgroup;
