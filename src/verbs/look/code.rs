//! The status code that a finer state belongs to.

use pgrx::prelude::*;

/// `taskq._status_code(state text) -> taskq.status_code`
#[pg_extern(sql = "")]
fn taskq_status_code(state: &str) -> &str {
    match state {
        "blocked" | "scheduled" | "ready" => "pending",
        other => other,
    }
}
