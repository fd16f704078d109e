//! `complete_task`: completes by hand a task that no worker holds, or a signal.

use pgrx::datum::AnyElement;
use pgrx::prelude::*;

use super::signal::signalled;
use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::input::check_value;
use crate::locks::{self, LockStrength};
use crate::pg::json::JsonText;
use crate::rights::{self, Doing};
use crate::settle::{Ending, fold, settle};
use crate::state::{Cause, Outcome};
use crate::store::{numbers, sizes, task};

/// `taskq.complete_task(task_id, result, status) -> taskq.status_code`
#[pg_extern(sql = "")]
fn taskq_complete_task(task_id: Option<&str>, result: Option<AnyElement>, status: Option<String>) -> String {
    rights::for_caller(|| complete(task_id, result.and_then(JsonText::from_argument), status))
        .name()
        .to_owned()
}

/// Completes a task that waits for no other and for which no token is valid, or a signal. Whether it is in progress is asked once more
/// when its row is locked: a worker that is granted the task meanwhile keeps it.
fn complete(task_id: Option<&str>, result: Option<JsonText>, status: Option<String>) -> Result<Outcome> {
    let id = required("task_id", task_id)?;
    let length = result.as_ref().map_or(0, |result| result.0.len());
    check_value(|| "the result".to_owned(), length)?;
    let refuse =
        |state: &str, hint: &str| Err(Refusal::state(id, state, "cannot be completed by hand", hint));
    let in_progress = || {
        let hint = "Its actor will return it; cancel it if that is not wanted.";
        Err(locks::held(id, "cannot be completed by hand", hint))
    };
    rights::check_tasks(Doing::Change, numbers::by_id(&[id]).into_values())?;
    if locks::in_progress(&[id]).is_some() {
        return in_progress();
    }
    let (numbers, mut rows) =
        fold::locked(|| Ok(locks::lock_by_id(&[id], LockStrength::Update)), |(_, rows)| rows)?;
    let number = *numbers.get(id).ok_or_else(|| Refusal::no_such_task(id))?;
    rights::check_tasks(Doing::Change, [number])?;
    let Some(row) = rows.get(&number) else {
        return refuse("settled", "It has ended already; taskq.tasks tells how.");
    };
    if row.in_progress() {
        return in_progress();
    }
    if row.counter().is_some() && !task::wants(&[number]).get(&number).is_some_and(|wants| wants.signal) {
        return refuse(
            "blocked",
            "Complete it once the tasks it waits for are settled; taskq.why names them.",
        );
    }
    sizes::check("the result", length, &[number], |has| i64::from(has.body) + i64::from(has.metadata))?;
    signalled(&mut rows);
    let row = &rows[&number];
    let ending = Ending { result, ..Ending::of(row, Outcome::Completed, Cause::Operator, status) };
    settle(vec![ending], clock::now());
    Ok(Outcome::Completed)
}
