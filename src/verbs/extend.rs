//! `extend_tasks_ownership`: more time for what is still held.

use pgrx::datum::{Interval, Uuid};
use pgrx::prelude::*;

use super::args::pairs;
use super::more_time::more_time;
use crate::clock;
use crate::error::{Result, required};
use crate::input::{check_interval, check_name};
use crate::pg::block;
use crate::pg::clock::Time;
use crate::pg::rows::Rows;
use crate::returns::tokens::valid;
use crate::rights::{self, Doing};
use crate::token::Token;

/// `taskq.extend_tasks_ownership(actor_id, task_ids, tokens, lease) -> TABLE (task_id, owned, action_deadline)`
#[pg_extern(sql = "")]
fn taskq_extend_tasks_ownership(
    actor_id: Option<&str>,
    task_ids: Option<Vec<Option<String>>>,
    tokens: Option<Vec<Option<Uuid>>>,
    lease: Option<Interval>,
    info: pg_sys::FunctionCallInfo,
) -> Rows<(Option<String>, bool, Option<Time>)> {
    let _called = block::called(info);
    Rows(rights::for_caller(|| extend(actor_id, task_ids, tokens, lease)))
}

/// Moves the deadlines of those of the tasks that are held or can be held again; for each pair, whether it is one of these, and
/// its deadline then.
pub(super) fn extend(
    actor_id: Option<&str>,
    task_ids: Option<Vec<Option<String>>>,
    tokens: Option<Vec<Option<Uuid>>>,
    lease: Option<Interval>,
) -> Result<Vec<(Option<String>, bool, Option<Time>)>> {
    let actor_id = check_name("actor_id", actor_id)?;
    let pairs = pairs(required("task_ids", task_ids)?, required("tokens", tokens)?)?;
    let lease = required("lease", lease)?;
    check_interval("lease", Some(lease))?;
    let held = valid(&pairs);
    let tokens: Vec<Token> = held.values().copied().collect();
    let now = clock::now();
    let extended = more_time(&tokens, now.plus(lease), actor_id, now);
    // As for returns: a made-up token must reveal nothing of its task.
    rights::check_tasks(Doing::Work, extended.keys().copied())?;
    Ok(pairs
        .into_iter()
        .enumerate()
        .map(|(i, (id, _))| {
            let deadline = held.get(&i).and_then(|t| {
                extended.get(&t.task_no).filter(|(nonce, _)| *nonce == t.nonce).map(|(_, deadline)| *deadline)
            });
            (id, deadline.is_some(), deadline)
        })
        .collect())
}
