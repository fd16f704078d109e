//! Flow control: what holds tasks back besides their dependencies and limits. Actions, groups, pauses, priorities.

mod actions;
mod attempts;
mod backlogs;
mod dead_ends;
mod defaults;
mod forget;
mod groups;
mod groups_races;
mod known_actions;
mod notify;
mod pause;
mod priorities_changed;
mod progress;
mod prompt;
mod reset;
mod why;

use taskq_tests::flow::{at, call, count, owned, tasks};
