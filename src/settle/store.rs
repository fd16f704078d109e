//! Storing how tasks ended.

use std::collections::HashMap;

use pgrx::datum::Interval;

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::pg::table::{Key, Look, look};
use crate::state::Outcome;
use crate::store::settled::Ending;
use crate::store::task::{self, AtTheEnd};
use crate::store::{action_setting, ends, progress, settled, tally};
use crate::{guc, wake};

/// When a task settled now is to be removed, unless its own retention or its action's says otherwise.
pub(crate) fn expiry(now: Time, outcome: Outcome) -> Time {
    guc::retention(outcome).map_or(Time::INFINITY, |kept| now + kept)
}

/// How long the tasks of an action are kept, where that is set.
#[derive(Clone, Copy, Default)]
struct Kept {
    retention: Option<Interval>,
    retention_aborted: Option<Interval>,
}

fn kept(look: &Look, action_no: i32) -> Kept {
    action_setting::of_number(look, action_no, |row| Kept {
        retention: row.get(action_setting::RETENTION),
        retention_aborted: row.get(action_setting::RETENTION_ABORTED),
    })
    .unwrap_or_default()
}

/// Until when a task that ends now is kept: as it says itself, else its action, else the setting; and no shorter than it
/// holds its unique key.
fn expires_at(task: &AtTheEnd, of_action: impl FnOnce() -> Kept, outcome: Outcome, now: Time) -> Time {
    let own = match outcome {
        Outcome::Aborted => task.retention_aborted,
        Outcome::Completed => task.retention,
    };
    let retention = own.or_else(|| {
        let kept = of_action();
        match outcome {
            Outcome::Aborted => kept.retention_aborted.or(kept.retention),
            Outcome::Completed => kept.retention,
        }
    });
    let end = retention.map_or_else(|| expiry(now, outcome), |retention| now.plus(retention));
    task.unique_until.map_or(end, |until| end.max(until))
}

/// Writes how the tasks ended; what their ends depend on, in the same order.
fn write(endings: &[Ending], now: Time) -> Vec<AtTheEnd> {
    let mut settings: HashMap<i32, Kept> = HashMap::new();
    look(|look| {
        let tasks: Vec<AtTheEnd> = look.scan(&task::BY_NUMBER, |rows| {
            let of = |ending: &Ending| rows.first(&[Key::eq(1, ending.task_no)], AtTheEnd::read);
            endings
                .iter()
                .map(of)
                .map(|task| task.unwrap_or_else(|| pgrx::error!("a task that ends is gone")))
                .collect()
        });
        let mut until = |ending: &Ending, task: &AtTheEnd| {
            let of_action = || *settings.entry(task.action_no).or_insert_with(|| kept(look, task.action_no));
            expires_at(task, of_action, ending.outcome, now)
        };
        settled::insert(
            endings.iter().zip(&tasks).map(|(ending, task)| (ending, task, until(ending, task))),
            now,
        );
        tasks
    })
}

/// Stores the endings, has those who wait for them woken at commit, and notifies the listeners.
pub(crate) fn store(endings: &[Ending], now: Time) {
    if endings.is_empty() {
        return;
    }
    let now = ends::settling(now);
    let tasks = write(endings, now);
    let each = || endings.iter().zip(&tasks);
    let grouped: Vec<(TaskNo, Outcome)> =
        each().filter(|(_, task)| task.grouped).map(|(e, _)| (e.task_no, e.outcome)).collect();
    ends::out_of_time(|| endings.iter().map(|e| e.task_no).collect());
    tally::settled(&grouped, now);
    let done: Vec<TaskNo> = endings
        .iter()
        .filter(|e| e.tries > 0 && e.outcome == Outcome::Completed)
        .map(|e| e.task_no)
        .collect();
    if !done.is_empty() {
        progress::forget(&done);
    }
    settled::note(endings.len());
    for ending in endings {
        wake::settled(ending.task_no);
    }
    for outcome in [Outcome::Aborted, Outcome::Completed] {
        let announced = each().filter(|(ending, task)| task.post_result && ending.outcome == outcome);
        notify(&announced.map(|(ending, _)| ending.task_no).collect::<Vec<_>>(), outcome);
    }
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
