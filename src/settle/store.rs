//! Storing how tasks ended.

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::pg::table::look;
use crate::state::{Cause, Outcome};
use crate::store::settled::{self, Ending};
use crate::store::task::{self, AtTheEnd};
use crate::store::{ends, expiry, known_actions, progress, tally};
use crate::{guc, wake};

/// When a task settled now is to be removed, as the setting says. (The task itself and its action come before.)
pub(crate) fn expiry(now: Time, outcome: Outcome) -> Time {
    guc::retention(outcome).map_or(Time::INFINITY, |kept| now + kept)
}

/// Until when a task that ends now is kept: as it says itself, else its action, else the setting; and no shorter than its
/// unique period lasts, if it has one.
fn expires_at(task: &AtTheEnd, outcome: Outcome, now: Time) -> Time {
    let own = match outcome {
        Outcome::Aborted | Outcome::Skipped => task.retention_aborted,
        Outcome::Completed => task.retention,
    };
    let of_action = || {
        let action = known_actions::of_number(task.action_no)?;
        match outcome {
            Outcome::Aborted | Outcome::Skipped => {
                action.setting.retention_aborted.or(action.setting.retention)
            }
            Outcome::Completed => action.setting.retention,
        }
    };
    let end = own.or_else(of_action).map_or_else(|| expiry(now, outcome), |retention| now.plus(retention));
    task.unique_until.map_or(end, |until| end.max(until))
}

/// Writes how the tasks ended; what their ends depend on, in the same order.
fn write(endings: &[Ending], now: Time) -> Vec<AtTheEnd> {
    let tasks: Vec<AtTheEnd> =
        look(|look| task::each(look, endings.iter().map(|e| e.task_no), |_, row| AtTheEnd::read(row)))
            .into_iter()
            .map(|task| task.unwrap_or_else(|| pgrx::error!("a task that ends is gone")))
            .collect();
    let until = |ending: &Ending, task: &AtTheEnd| expires_at(task, ending.outcome, now);
    settled::insert(endings.iter().zip(&tasks).map(|(e, task)| (e, task, until(e, task))), now);
    tasks
}

/// Stores the endings, has the calls that wait for them woken at commit, and notifies the listeners of those with `post_result`. Returns when they
/// settled.
pub(crate) fn store(endings: &[Ending], now: Time) -> Time {
    if endings.is_empty() {
        return now;
    }
    let now = ends::settling(now);
    let tasks = write(endings, now);
    let each = || endings.iter().zip(&tasks);
    let grouped: Vec<(TaskNo, Outcome)> =
        each().filter(|(_, task)| task.grouped).map(|(e, _)| (e.task_no, e.outcome)).collect();
    expiry::forget(&each().filter(|(_, task)| task.expires).map(|(e, _)| e.task_no).collect::<Vec<_>>());
    ends::out_of_time(|| endings.iter().map(|e| e.task_no).collect());
    tally::settled(&grouped, now);
    let done: Vec<TaskNo> = endings
        .iter()
        .filter(|e| e.outcome == Outcome::Completed && e.cause != Cause::Spontaneous)
        .map(|e| e.task_no)
        .collect();
    if !done.is_empty() {
        progress::forget(&done);
    }
    for ending in endings {
        wake::settled(ending.task_no);
    }
    for outcome in [Outcome::Aborted, Outcome::Completed] {
        let announced = each()
            .filter(|(ending, task)| task.post_result && ending.outcome.is_abort() == outcome.is_abort());
        notify(&announced.map(|(ending, _)| ending.task_no).collect::<Vec<_>>(), outcome);
    }
    now
}

static NOTIFY: Statement<(&[TaskNo], &str)> = Statement::new(
    c"SELECT pg_catalog.pg_notify(taskq.task_channel(t.id),
                                  pg_catalog.json_build_object('task_id', t.id, 'status_code', $2)::text)
             IS NULL
        FROM taskq.task t WHERE t.task_no = ANY ($1) AND t.post_result",
);

/// Sends the notifications of those of the tasks that were inserted with `post_result`.
pub(crate) fn notify(task_nos: &[TaskNo], outcome: Outcome) {
    if !task_nos.is_empty() {
        NOTIFY.execute((task_nos, outcome.name()));
    }
}
