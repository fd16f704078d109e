//! Flow control: what holds tasks back besides their dependencies. Limits, groups, workgroups, merge keys, schedules.

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
mod merge;
mod merge_concurrent;
mod merge_many;
mod merge_open;
mod merge_order;
mod notify;
mod pause;
mod priorities_changed;
mod progress;
mod prompt;
mod rate;
mod reset;
mod schedules;
mod schedules_again;
mod schedules_concurrent;
mod schedules_paused;
mod stress;
mod why;
mod workgroups;
mod workgroups_back;
mod workgroups_races;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taskq_tests::{Grant, Session};

/// Tasks `<action>1` to `<action>n` of an action.
fn tasks(action: &str, n: usize) -> Value {
    (1..=n).map(|i| json!({"id": format!("{action}{i}"), "action": action})).collect()
}

/// Runs `SELECT taskq.<call>`, which must work.
fn call(session: &mut Session, call: &str) {
    session.run(&format!("SELECT taskq.{call}"));
}

/// How many tasks, or whatever else it counts, a function of the queue says that it changed.
fn count(session: &mut Session, call: &str) -> i64 {
    session.one(&format!("SELECT taskq.{call}"))
}

/// The ids of what own_tasks grants.
fn owned(session: &mut Session, max_tasks: i32, actions: &[&str]) -> Vec<String> {
    ids(&session.own("worker", max_tasks, actions).unwrap())
}

/// Waits for a task of an action, for a quarter of a minute at most. A call may come back early with nothing, so in a loop.
fn wait_for_one(session: &mut Session, action: &str) -> Option<Grant> {
    let end = Instant::now() + Duration::from_secs(15);
    while Instant::now() < end {
        let grants = session.own_with("waiter", 1, &[action], "wait => '15 seconds'").unwrap();
        if let Some(grant) = grants.into_iter().next() {
            return Some(grant);
        }
    }
    None
}

fn ids(grants: &[Grant]) -> Vec<String> {
    grants.iter().map(|grant| grant.task_id.clone()).collect()
}

/// Sets the faked clock of the session to so many seconds after the beginning of 2030.
fn at(session: &mut Session, seconds: f64) {
    session.run(&format!(
        "SELECT set_config('taskq.now', (timestamptz '2030-01-01 00:00:00Z' + {seconds} * interval '1 second')::text, false)"
    ));
}
