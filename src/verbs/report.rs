//! `report_status`: word from a task that is being performed.

use pgrx::datum::{AnyElement, Uuid};
use pgrx::prelude::*;

use crate::error::{Refusal, Result, required};
use crate::input::{check_value, cut_status};
use crate::number::TaskNo;
use crate::pg::json::JsonText;
use crate::pg::statement::Statement;
use crate::returns::tokens;
use crate::rights::{self, Doing};
use crate::store::run::changes;
use crate::store::{numbers, positions, progress, sizes};
use crate::token::{Nonce, Token};

/// `taskq.report_status(task_id, token, status, progress, checkpoint) -> void`
#[pg_extern(sql = "")]
fn taskq_report_status(
    task_id: Option<&str>,
    token: Option<Uuid>,
    status: Option<&str>,
    progress: Option<f64>,
    checkpoint: Option<AnyElement>,
) {
    rights::for_caller(|| {
        report(task_id, token, status, progress, checkpoint.and_then(JsonText::from_argument))
    });
}

/// FOR KEY SHARE: the task is not returned or cancelled before the transaction of the report ends. Reports of different
/// processes wait for each other only at the row in `progress`.
static HELD: Statement<(TaskNo, Nonce), bool> = Statement::new(
    c"SELECT r.prev_nonce <> 0 FROM taskq.run r WHERE r.task_no = $1 AND r.nonce = $2 FOR KEY SHARE",
);

/// Stores what is not NULL and keeps the rest of the last report.
fn report(
    task_id: Option<&str>,
    token: Option<Uuid>,
    status: Option<&str>,
    progress: Option<f64>,
    checkpoint: Option<JsonText>,
) -> Result<()> {
    let id = required("task_id", task_id)?;
    let token = required("token", token)?;
    if progress.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
        return Err(Refusal::out_of_range(
            "progress",
            &progress.unwrap_or_default().to_string(),
            "Give the part that is done, from 0 to 1.",
        ));
    }
    let its = performance(id, &token)?;
    let Some(missed_before) = HELD.first((its.task_no, its.nonce)) else {
        return Err(tokens::refusal(id, &token));
    };
    let checkpoint_length = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.0.len());
    check_value(|| "the checkpoint".to_owned(), checkpoint_length)?;
    sizes::check("the checkpoint", checkpoint_length, &[its.task_no], |has| {
        i64::from(has.body) + i64::from(has.metadata)
    })?;
    let status = cut_status(status.map(str::to_owned));
    progress::REPORT.execute((its.task_no, status.as_deref(), progress, checkpoint));
    if missed_before {
        changes::SAID.execute(its.task_no);
    }
    Ok(())
}

/// The performance that a call is about. Whether it is the last one granted is for the task's row to say.
pub(super) fn performance(id: &str, token: &Uuid) -> Result<Token> {
    let Some(number) = numbers::by_id(&[id]).get(id).copied() else {
        return Err(match tokens::is_foreign(Some(token), positions::shard()) {
            true => tokens::refusal(id, token),
            false => Refusal::no_such_task(id),
        });
    };
    rights::check_tasks(Doing::Work, [number])?;
    let its = Token::from_uuid(token).filter(|t| t.task_no == number && t.nonce != Nonce::NONE);
    its.ok_or_else(|| tokens::refusal(id, token))
}
