//! `signal`: word from outside for a task that waits for it.

use std::time::Duration;

use pgrx::datum::{AnyElement, Interval};
use pgrx::prelude::*;

use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::guc;
use crate::input::{TaskSpec, check_id, check_interval, check_name};
use crate::insert::{OnConflict, Options, insert};
use crate::locks::{self, Idle, LockStrength, restartable};
use crate::pg::clock::{length, parse_interval};
use crate::pg::json::JsonText;
use crate::pg::session::check_for_interrupts;
use crate::rights::{self, Doing};
use crate::settle::{Ending, fold, settle, without_open};
use crate::state::{Cause, Outcome};
use crate::store::live::{self, Live};
use crate::store::{expiry, known_actions, task};

/// `taskq.signal(task_id, result, status, action, retention) -> boolean`
#[pg_extern(sql = "")]
fn taskq_signal(
    task_id: Option<&str>,
    result: Option<AnyElement>,
    status: Option<String>,
    action: Option<&str>,
    retention: Option<Interval>,
) -> bool {
    rights::for_caller(|| {
        let id = required("task_id", task_id)?;
        check_id(None, Some(id))?;
        let action = check_name("action", action)?;
        check_interval("retention", retention)?;
        let signal =
            Signal { id, result: result.and_then(JsonText::from_argument), status, action, retention };
        rights::check_named(Doing::Change, [id])?;
        restartable(|| signal.send())
    })
}

/// What comes from outside.
struct Signal<'a> {
    id: &'a str,
    result: Option<JsonText>,
    status: Option<String>,
    /// Of the task that is inserted if there is none.
    action: &'a str,
    retention: Option<Interval>,
}

/// What there is of a signal.
enum Found {
    /// It waits for this call: its row is locked.
    Waiting(Live),
    /// It has ended.
    Settled,
    Nothing,
}

impl Signal<'_> {
    /// Completes the task, which is inserted if it is not there; false if it has ended before, or has expired. Of two calls at once, the
    /// second waits for the first, by the row of the task or by its id, and finds what that has left.
    fn send(&self) -> Result<bool> {
        loop {
            check_for_interrupts();
            match self.find()? {
                Found::Waiting(row) => return Ok(self.end(row)),
                Found::Settled => return Ok(false),
                Found::Nothing => {}
            }
            rights::check_actions(Doing::Insert, [self.action])?;
            let options = Options { on_conflict: OnConflict::Skip, ignore_missing: false };
            // Nothing is inserted if another call was faster: then that is found.
            insert(vec![self.early()], options)?;
        }
    }

    fn find(&self) -> Result<Found> {
        let no_signal = |id: &str| {
            let hint =
                "A signal is a task with the key \"signal\": true; complete_task completes others by hand.";
            Refusal::state(id, "no signal", "cannot be signalled", hint)
        };
        // One in progress is refused without a lock.
        Idle { ids: vec![self.id], refusal: no_signal_in_progress }.look()?;
        let lock = || locks::lock_any(&[self.id], &[], LockStrength::Update, LockStrength::KeyShare);
        let (numbers, mut rows, _) = fold::locked(lock, |(_, rows, _)| rows)?;
        let Some(task_no) = numbers.get(self.id).copied() else { return Ok(Found::Nothing) };
        rights::check_tasks(Doing::Change, [task_no])?;
        if !task::wants(&[task_no]).get(&task_no).is_some_and(|wants| wants.signal) {
            return Err(no_signal(self.id));
        }
        Ok(rows.remove(&task_no).map_or(Found::Settled, Found::Waiting))
    }

    /// Completes it, unless its time has passed: then it aborts, as if a call had looked after what expires in time.
    fn end(&self, mut row: Live) -> bool {
        let now = clock::now();
        signalled(&mut row);
        let expired = expiry::PASSED_ONE.first((row.task_no, now));
        let in_time = expired.is_none();
        let end = match expired {
            Some(status) => Ending::abort(&row, Cause::Expired, Some(status)),
            None => Ending {
                result: self.result.clone(),
                ..Ending::of(&row, Outcome::Completed, Cause::Signalled, self.status.clone())
            },
        };
        settle(vec![end], now);
        in_time
    }

    /// The task that waits for this call alone. Where no retention is given it is kept for a day at least, so that what waits for it
    /// may come later.
    fn early(&self) -> TaskSpec {
        let action = known_actions::named([self.action].into_iter()).pop();
        let of_action = action.and_then(|action| action.setting.retention).map(length);
        let kept_otherwise = of_action.or_else(|| guc::retention(Outcome::Completed));
        let is_short = self.retention.is_none() && kept_otherwise.is_some_and(|kept| kept < DAY);
        let at_least = if is_short { parse_interval("1 day") } else { None };
        TaskSpec {
            id: Some(self.id.to_owned()),
            action: self.action.to_owned(),
            signal: true,
            retention: self.retention.or(at_least),
            retention_aborted: self.retention.or(at_least),
            ..TaskSpec::default()
        }
    }
}

/// Removes the row of a signal that has come. What it has not waited for does not matter any more: it goes on without that, and does not
/// start over with it.
pub(super) fn signalled(row: &mut Live) {
    if row.counter().is_some_and(|counter| counter.open() > 0) {
        without_open(std::iter::once(&mut *row));
    }
    live::remove([&*row]);
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn no_signal_in_progress(id: &str) -> Refusal {
    let hint = "Its worker will return it. A signal is a task with the key \"signal\": true.";
    Refusal::state(id, "in progress", "cannot be signalled", hint)
}
