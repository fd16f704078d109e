//! Storing how tasks ended.

use std::collections::HashMap;

use pgrx::datum::Interval;

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::pg::table::{Key, Look, insert, look};
use crate::state::{Cause, Outcome};
use crate::store::live::Live;
use crate::store::task::{self, AtTheEnd};
use crate::store::{action_setting, ends, progress, settled, tally};
use crate::{guc, wake};

/// How a task ended.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) task_no: i64,
    pub(crate) outcome: Outcome,
    pub(crate) cause: Cause,
    pub(crate) status: Option<String>,
    pub(crate) result: Option<JsonText>,
    pub(crate) granted_at: Option<Time>,
    pub(crate) actor_id: Option<String>,
    pub(crate) tries: i32,
    pub(crate) failures: i32,
    pub(crate) dependencies: i32,
    pub(crate) signals: i32,
    /// It held its merge key.
    pub(crate) keyed: bool,
    /// The task with the same merge key that ran for it, if it shares the end of one.
    pub(crate) leader: Option<i64>,
}

impl Ending {
    /// The abort of a live task.
    pub(crate) fn abort(live: &Live, cause: Cause, status: Option<String>) -> Self {
        Ending {
            task_no: live.task_no,
            outcome: Outcome::Aborted,
            cause,
            status,
            result: None,
            granted_at: live.granted_at,
            actor_id: live.actor_id.clone(),
            tries: live.tries,
            failures: live.failures,
            dependencies: live.dependencies,
            signals: live.signals(),
            keyed: live.keyed,
            leader: None,
        }
    }
}

/// When a task settled now is to be removed, unless its own retention or its action's says otherwise.
pub(crate) fn expiry(now: Time, outcome: Outcome) -> Time {
    match guc::retention_seconds(outcome) {
        Some(seconds) => Time(now.0.saturating_add(i64::from(seconds) * 1_000_000)),
        None => Time::INFINITY,
    }
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
        insert(&settled::TABLE, |into| {
            for (ending, task) in endings.iter().zip(&tasks) {
                check_for_interrupts();
                let of_action =
                    || *settings.entry(task.action_no).or_insert_with(|| kept(look, task.action_no));
                let expires_at = expires_at(task, of_action, ending.outcome, now);
                into.row(|| {
                    [
                        settled::TASK_NO.to(ending.task_no),
                        settled::EXPIRES_AT.to(expires_at),
                        settled::SETTLED_AT.to(now),
                        settled::GRANTED_AT.to(ending.granted_at),
                        settled::TRIES.to(ending.tries),
                        settled::FAILURES.to(ending.failures),
                        settled::DEPENDENCIES.to(ending.dependencies),
                        settled::SIGNALS.to(ending.signals),
                        settled::ACTION_NO.to(task.action_no),
                        settled::GROUPED.to(task.grouped),
                        settled::CODE.to(ending.outcome.stored()),
                        settled::CAUSE.to(ending.cause.stored()),
                        settled::ACTOR_ID.to(ending.actor_id.as_deref()),
                        settled::STATUS.to(ending.status.as_deref()),
                        settled::RESULT.to(ending.result.clone()),
                        settled::LEADER_NO.to(ending.leader),
                    ]
                });
            }
        });
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
    let grouped: Vec<(i64, Outcome)> =
        each().filter(|(_, task)| task.grouped).map(|(e, _)| (e.task_no, e.outcome)).collect();
    ends::out_of_time(|| endings.iter().map(|e| e.task_no).collect());
    tally::settled(&grouped, now);
    let done: Vec<i64> = endings
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

static NOTIFY: Statement<(&[i64], &str)> = Statement::new(
    c"SELECT pg_catalog.pg_notify(taskq.task_channel(t.id),
                                  pg_catalog.json_build_object('task_id', t.id, 'status_code', $2)::text)
             IS NULL
        FROM taskq.task t WHERE t.task_no = ANY ($1) AND t.post_result",
);

/// Sends the notifications of those of the tasks that were inserted with `post_result`.
pub(crate) fn notify(task_nos: &[i64], outcome: Outcome) {
    if !task_nos.is_empty() {
        NOTIFY.execute((task_nos, outcome.name()));
    }
}
