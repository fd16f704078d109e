//! The committer: what happens when a commit arrives on a branch.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use crate::queue::{Queue, sqlstate};
use crate::tasks::{DONE_EXPORT, MAX_TRIES, NEXT_EXPORT, Request, URGENT, branch_task};

/// Asks for an export of a commit, behind the one that may be going on.
///
/// A `next-export` that no worker has begun is replaced: the newer commit is the one to export. One in progress cannot
/// be (`TQ005`): in a moment its worker will have created the `done-export` to wait for, so this tries again, and says
/// how often it had to. The condition is `settled`: a failed export does not block the next one.
pub fn announce(queue: &mut Queue, request: &Request) -> Result<u32> {
    let tasks = json!([{
        "id": branch_task(NEXT_EXPORT, &request.branch),
        "action": NEXT_EXPORT,
        "body": request,
        "max_tries": MAX_TRIES,
        "priority": URGENT,
        "depends_on": [{ "id": branch_task(DONE_EXPORT, &request.branch), "condition": "settled" }],
    }]);
    // Longer than any lease that a worker killed in next-export can have left behind.
    let give_up = Instant::now() + Duration::from_secs(60);
    let mut retries = 0;
    loop {
        match try_once(queue, request, &tasks) {
            Ok(()) => return Ok(retries),
            Err(error) if sqlstate(&error) == Some("TQ005") && Instant::now() < give_up => {
                retries += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error).context("cannot ask for an export"),
        }
    }
}

fn try_once(queue: &mut Queue, request: &Request, tasks: &serde_json::Value) -> Result<()> {
    let mut transaction = queue.client().transaction()?;
    // The first export of a branch has no done-export to wait for.
    transaction.execute("SELECT taskq.replace_tasks($1, if_missing => 'ignore')", &[tasks])?;
    transaction.execute("INSERT INTO branch_export.arrival (request) VALUES ($1)", &[&request.request])?;
    Ok(transaction.commit()?)
}
