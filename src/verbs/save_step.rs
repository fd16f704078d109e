//! `save_step`: the result of a step of a durable task, kept once.

use pgrx::datum::{AnyElement, Interval, Uuid};
use pgrx::prelude::*;

use super::extend::extend;
use super::report::performance;
use crate::clock;
use crate::error::{Result, required, shortened};
use crate::input::{check_interval, check_name, check_value};
use crate::number::TaskNo;
use crate::pg::json::JsonText;
use crate::pg::statement::{Statement, record};
use crate::returns::tokens;
use crate::rights;
use crate::store::run::changes;
use crate::store::step;
use crate::token::Nonce;
use crate::wake;

/// `taskq.save_step(task_id, token, step, result, lease) -> jsonb`
#[pg_extern(sql = "")]
fn taskq_save_step(
    task_id: Option<&str>,
    token: Option<Uuid>,
    step: Option<&str>,
    result: Option<AnyElement>,
    lease: Option<Interval>,
) -> Option<AnyElement> {
    rights::for_caller(|| save(task_id, token, step, result.and_then(JsonText::from_argument), lease))
        .and_then(JsonText::into_result)
}

record! {
    /// A row of [`HELD`].
    struct Held {
        tries: i32,
        actor_id: Option<String>,
        action_no: i32,
        grantable: bool,
        missed_before: bool,
    }
}

/// FOR NO KEY UPDATE, until the transaction ends: of several processes with one token the second saves when the first has
/// committed or has been rolled back, with a look that is newer. So it finds the step if that was saved, and the next position if it
/// was another one. Nor is the task returned, taken over or cancelled before: an actor that is granted it after the commit finds the
/// step. Readers do not wait for it, nor do calls that only refer to the row (FOR KEY SHARE): reports, and insertions of
/// tasks that depend on this one.
static HELD: Statement<(TaskNo, Nonce), Held> = Statement::new(
    c"SELECT r.tries, r.actor_id, r.action_no, r.grantable, r.prev_nonce <> 0 FROM taskq.run r
       WHERE r.task_no = $1 AND r.nonce = $2 FOR NO KEY UPDATE",
);

/// What is stored of the step from now on.
fn save(
    task_id: Option<&str>,
    token: Option<Uuid>,
    step: Option<&str>,
    result: Option<JsonText>,
    lease: Option<Interval>,
) -> Result<Option<JsonText>> {
    let id = required("task_id", task_id)?;
    let token = required("token", token)?;
    let name = check_name("step", step)?;
    check_interval("lease", lease)?;
    check_value(
        || format!("the result of step \"{}\"", shortened(name)),
        result.as_ref().map_or(0, |r| r.0.len()),
    )?;
    let its = performance(id, &token)?;
    let Some(held) = HELD.first((its.task_no, its.nonce)) else {
        return Err(tokens::refusal(id, &token));
    };
    if held.grantable {
        // Its deadline has passed. Claims pass over it as long as it is locked.
        wake::held(its.task_no, held.action_no);
    }
    let stored = match step::FIND.first((its.task_no, name)) {
        Some((_, stored)) => stored,
        None => {
            step::APPEND.execute((its.task_no, name, held.tries, clock::now(), result.clone()));
            if held.missed_before {
                changes::SAID.execute(its.task_no);
            }
            result
        }
    };
    if lease.is_some() {
        let (ids, tokens) = (vec![Some(id.to_owned())], vec![Some(token)]);
        extend(held.actor_id.as_deref(), Some(ids), Some(tokens), lease)?;
    }
    Ok(stored)
}
