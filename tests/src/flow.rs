//! What tests of flow control have in common.

use std::time::{Duration, Instant};

use crate::{Grant, Session};
use serde_json::{Value, json};

/// Tasks `<action>1` to `<action>n` of an action.
pub fn tasks(action: &str, n: usize) -> Value {
    (1..=n).map(|i| json!({"id": format!("{action}{i}"), "action": action})).collect()
}

/// Runs `SELECT taskq.<call>`, which must work.
pub fn call(session: &mut Session, call: &str) {
    session.run(&format!("SELECT taskq.{call}"));
}

/// How many tasks, or whatever else it counts, a function of the queue says that it changed.
pub fn count(session: &mut Session, call: &str) -> i64 {
    session.one(&format!("SELECT taskq.{call}"))
}

/// The ids of what own_tasks grants.
pub fn owned(session: &mut Session, max_tasks: i32, actions: &[&str]) -> Vec<String> {
    ids(&session.own("worker", max_tasks, actions).unwrap())
}

/// Waits for a task of an action; `None` if none has come in a quarter of a minute.
pub fn wait_for_one(session: &mut Session, action: &str) -> Option<Grant> {
    let end = Instant::now() + Duration::from_secs(15);
    while Instant::now() < end {
        let grants = session.own_with("waiter", 1, &[action], "wait => '15 seconds'").unwrap();
        if let Some(grant) = grants.into_iter().next() {
            return Some(grant);
        }
    }
    None
}

pub fn ids(grants: &[Grant]) -> Vec<String> {
    grants.iter().map(|grant| grant.task_id.clone()).collect()
}

/// Sets the faked clock of the session to so many seconds after the beginning of 2030.
pub fn at(session: &mut Session, seconds: f64) {
    session.run(&format!(
        "SELECT set_config('taskq.now', (timestamptz '2030-01-01 00:00:00Z' + {seconds} * interval '1 second')::text, false)"
    ));
}
