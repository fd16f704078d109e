//! `signal`, `signal_tasks`: word from outside for tasks that wait for it.

use std::collections::HashMap;
use std::time::Duration;

use pgrx::datum::{AnyElement, Interval};
use pgrx::prelude::*;

use super::insert::json;
use crate::clock;
use crate::error::{Refusal, Result, shortened};
use crate::guc;
use crate::input::{self, SignalSpec, TaskSpec, check_interval, check_name, check_value};
use crate::insert::{OnConflict, Options, insert};
use crate::locks::{self, Idle, LockStrength, restartable};
use crate::number::TaskNo;
use crate::pg::clock::{self as times, parse_interval};
use crate::pg::json::JsonText;
use crate::pg::session::{self, check_for_interrupts};
use crate::rights::{self, Doing};
use crate::settle::{Ending, fold, settle, without_open};
use crate::state::{Cause, Outcome};
use crate::store::live::{self, Live};
use crate::store::{expiry, known_actions, sizes, task};

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
        let id = check_name("task_id", task_id)?;
        let action = check_name("action", action)?.to_owned();
        check_interval("retention", retention)?;
        let result = result.and_then(JsonText::from_argument);
        let signal = SignalSpec { task_id: id.to_owned(), result, status, action, retention };
        Ok(send_all(&[signal])? == 1)
    })
}

/// `taskq.signal_tasks(signals jsonb) -> bigint`
#[pg_extern(sql = "")]
fn taskq_signal_tasks(signals: Option<AnyElement>) -> i64 {
    rights::for_caller(|| send_all(&input::parse_signals(&json("signals", signals)?)?))
}

/// Completes the signals, each of which has an id of its own; how many this call has completed.
fn send_all(signals: &[SignalSpec]) -> Result<i64> {
    session::refuse_if_read_only();
    for signal in signals {
        check_value(|| format!("the result of signal \"{}\"", shortened(&signal.task_id)), length(signal))?;
    }
    rights::check_named(Doing::Change, signals.iter().map(|signal| signal.task_id.as_str()))?;
    restartable(|| send(signals))
}

/// How long the result is, in bytes.
fn length(signal: &SignalSpec) -> usize {
    signal.result.as_ref().map_or(0, |result| result.0.len())
}

/// Refuses a result that is too large beside what the signal has.
fn check_beside(signals: &[SignalSpec], numbers: &HashMap<String, TaskNo>) -> Result<()> {
    let others = |has: &sizes::Sizes| i64::from(has.body) + i64::from(has.metadata);
    signals.iter().try_for_each(|signal| match numbers.get(&signal.task_id) {
        Some(task_no) => sizes::check("the result", length(signal), &[*task_no], others),
        None => Ok(()),
    })
}

/// Completes those that have not ended or expired before, and inserts what is not there. Of two calls at once, the second waits for
/// the first, by the rows of the tasks or by their ids, and finds what that has left.
fn send(signals: &[SignalSpec]) -> Result<i64> {
    loop {
        check_for_interrupts();
        let (numbers, rows) = find(signals)?;
        let missing: Vec<_> =
            signals.iter().filter(|signal| !numbers.contains_key(&signal.task_id)).collect();
        if missing.is_empty() {
            check_beside(signals, &numbers)?;
            return Ok(end(signals, &numbers, rows));
        }
        rights::check_actions(Doing::Insert, missing.iter().map(|signal| signal.action.as_str()))?;
        let options = Options { on_conflict: OnConflict::Skip, ignore_missing: false };
        // What another call was faster to insert is left out: then that is found.
        insert(missing.into_iter().map(early).collect(), options)?;
    }
}

/// The numbers of those that are there, and the locked rows of those of them that have not ended.
fn find(signals: &[SignalSpec]) -> Result<(HashMap<String, TaskNo>, HashMap<TaskNo, Live>)> {
    let ids: Vec<&str> = signals.iter().map(|signal| signal.task_id.as_str()).collect();
    // One in progress is refused without a lock.
    Idle { ids: ids.clone(), refusal: no_signal_in_progress }.look()?;
    let lock = || locks::lock_any(&ids, &[], LockStrength::Update, LockStrength::KeyShare);
    let (numbers, rows, _) = fold::locked(lock, |(_, rows, _)| rows)?;
    let found: Vec<TaskNo> = numbers.values().copied().collect();
    rights::check_tasks(Doing::Change, found.iter().copied())?;
    let wants = task::wants(&found);
    let is_other = |id: &&str| numbers.get(*id).is_some_and(|n| !wants.get(n).is_some_and(|one| one.signal));
    match ids.into_iter().find(is_other) {
        Some(id) => {
            let hint =
                "A signal is a task with the key \"signal\": true; complete_task completes others by hand.";
            Err(Refusal::state(id, "no signal", "cannot be signalled", hint))
        }
        None => Ok((numbers, rows)),
    }
}

/// Completes those that have not ended; how many. One whose time has passed aborts, as if a call had looked after what expires in
/// time.
fn end(signals: &[SignalSpec], numbers: &HashMap<String, TaskNo>, mut rows: HashMap<TaskNo, Live>) -> i64 {
    let now = clock::now();
    signalled(&mut rows);
    let waiting: Vec<TaskNo> = rows.keys().copied().collect();
    let expired: HashMap<TaskNo, String> = expiry::PASSED_OF.query((waiting, now)).into_iter().collect();
    let ending = |signal: &SignalSpec| {
        let row = rows.get(numbers.get(&signal.task_id)?)?;
        Some(match expired.get(&row.task_no) {
            Some(status) => Ending::abort(row, Cause::Expired, Some(status.clone())),
            None => Ending {
                result: signal.result.clone(),
                ..Ending::of(row, Outcome::Completed, Cause::Signalled, signal.status.clone())
            },
        })
    };
    let mut endings: Vec<Ending> = signals.iter().filter_map(ending).collect();
    endings.sort_unstable_by_key(|ending| ending.task_no);
    settle(endings, now);
    (rows.len() - expired.len()) as i64
}

/// The task that waits for this call alone. Where no retention is given it is kept for a day at least, so that what waits for it
/// may come later.
fn early(signal: &SignalSpec) -> TaskSpec {
    let action = known_actions::named([signal.action.as_str()].into_iter()).pop();
    let of_action = action.and_then(|action| action.setting.retention).map(times::length);
    let kept_otherwise = of_action.or_else(|| guc::retention(Outcome::Completed));
    let is_short = signal.retention.is_none() && kept_otherwise.is_some_and(|kept| kept < DAY);
    let at_least = if is_short { parse_interval("1 day") } else { None };
    TaskSpec {
        id: Some(signal.task_id.clone()),
        action: signal.action.clone(),
        signal: true,
        retention: signal.retention.or(at_least),
        retention_aborted: signal.retention.or(at_least),
        ..TaskSpec::default()
    }
}

/// Removes the rows of signals that have come. What they have not waited for does not matter any more: they go on without that, and do
/// not start over with it.
pub(super) fn signalled(rows: &mut HashMap<TaskNo, Live>) {
    let is_open = |row: &Live| row.counter().is_some_and(|counter| counter.open() > 0);
    if rows.values().any(is_open) {
        without_open(rows.values_mut().filter(|row| is_open(row)));
    }
    live::remove(rows.values());
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn no_signal_in_progress(id: &str) -> Refusal {
    let hint = "Its worker will return it. A signal is a task with the key \"signal\": true.";
    Refusal::state(id, "in progress", "cannot be signalled", hint)
}
