//! Storing how tasks ended.

use pgrx::pg_sys::{
    CHARARRAYOID, INT4ARRAYOID, INT8ARRAYOID, JSONBARRAYOID, TEXTARRAYOID, TEXTOID, TIMESTAMPTZARRAYOID,
    TIMESTAMPTZOID,
};

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::statement::{Statement, args, sparse};
use crate::state::{Cause, Outcome};
use crate::store::live::Live;
use crate::store::tally;
use crate::upkeep::retention;
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

static STORE: Statement = Statement::new(
    c"WITH kept AS MATERIALIZED (
        SELECT a.action_no, s.retention, COALESCE(s.retention_aborted, s.retention) AS retention_aborted
          FROM taskq.action_setting s JOIN taskq.action a ON a.name = s.name
         WHERE s.retention IS NOT NULL OR s.retention_aborted IS NOT NULL)
      INSERT INTO taskq.settled (task_no, expires_at, settled_at, granted_at, tries, failures, dependencies,
                                 signals, action_no, grouped, code, cause, actor_id, status, result, leader_no)
      SELECT u.task_no, GREATEST(COALESCE($13 OPERATOR(pg_catalog.+) CASE u.code
                 WHEN 'a' THEN COALESCE(t.retention_aborted,
                     (SELECT k.retention_aborted FROM kept AS k WHERE k.action_no = t.action_no))
                 ELSE COALESCE(t.retention, (SELECT k.retention FROM kept AS k WHERE k.action_no = t.action_no)) END,
                 CASE u.code WHEN 'a' THEN $14 ELSE $12 END), t.unique_until),
             $13, u.granted_at, u.tries,
             u.failures, u.dependencies, u.signals, t.action_no, t.group_id IS NOT NULL, u.code, u.cause, u.actor_id, u.status, u.result,
             u.leader_no
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $15)
             AS u(task_no, granted_at, tries, failures, dependencies, signals, code, cause, actor_id, status,
                  result, leader_no)
       CROSS JOIN LATERAL (SELECT t.retention, t.retention_aborted, t.unique_until, t.action_no, t.group_id FROM taskq.task t
                            WHERE t.task_no = u.task_no OFFSET 0) AS t
      RETURNING task_no, grouped, code",
    &[
        INT8ARRAYOID,
        TIMESTAMPTZARRAYOID,
        INT4ARRAYOID,
        INT4ARRAYOID,
        INT4ARRAYOID,
        INT4ARRAYOID,
        CHARARRAYOID,
        CHARARRAYOID,
        TEXTARRAYOID,
        TEXTARRAYOID,
        JSONBARRAYOID,
        TIMESTAMPTZOID,
        TIMESTAMPTZOID,
        TIMESTAMPTZOID,
        INT8ARRAYOID,
    ],
);
static FORGET_PROGRESS: Statement =
    Statement::new(c"DELETE FROM taskq.progress p WHERE p.task_no = ANY ($1)", &[INT8ARRAYOID]);

/// Stores the endings, has those who wait for them woken at commit, and notifies the listeners.
pub(crate) fn store(endings: &[Ending], now: Time) {
    if endings.is_empty() {
        return;
    }
    let task_nos: Vec<i64> = endings.iter().map(|e| e.task_no).collect();
    let ends: Vec<(i64, bool, i8)> = STORE.query(
        args![
            task_nos.as_slice(),
            endings.iter().map(|e| e.granted_at).collect::<Vec<_>>(),
            endings.iter().map(|e| e.tries).collect::<Vec<_>>(),
            endings.iter().map(|e| e.failures).collect::<Vec<_>>(),
            endings.iter().map(|e| e.dependencies).collect::<Vec<_>>(),
            endings.iter().map(|e| e.signals).collect::<Vec<_>>(),
            endings.iter().map(|e| e.outcome.stored()).collect::<Vec<_>>(),
            endings.iter().map(|e| e.cause.stored()).collect::<Vec<_>>(),
            endings.iter().map(|e| e.actor_id.clone()).collect::<Vec<_>>(),
            endings.iter().map(|e| e.status.clone()).collect::<Vec<_>>(),
            endings.iter().map(|e| e.result.clone()).collect::<Vec<_>>(),
            expiry(now, Outcome::Completed),
            now,
            expiry(now, Outcome::Aborted),
            sparse(endings.iter().map(|e| e.leader)),
        ],
        |row| (row.need(1), row.need(2), row.need(3)),
    );
    let grouped: Vec<(i64, Outcome)> = ends
        .into_iter()
        .filter(|(_, grouped, _)| *grouped)
        .map(|(task_no, _, code)| (task_no, Outcome::from_stored(code)))
        .collect();
    tally::settled(&grouped, now);
    let done: Vec<i64> = endings
        .iter()
        .filter(|e| e.tries > 0 && e.outcome == Outcome::Completed)
        .map(|e| e.task_no)
        .collect();
    if !done.is_empty() {
        forget_progress(&done);
    }
    retention::settled(task_nos.len());
    for task_no in &task_nos {
        wake::settled(*task_no);
    }
    for outcome in [Outcome::Aborted, Outcome::Completed] {
        let ended: Vec<i64> = endings.iter().filter(|e| e.outcome == outcome).map(|e| e.task_no).collect();
        notify(&ended, outcome);
    }
}

/// Removes what workers reported of tasks that have completed.
pub(crate) fn forget_progress(task_nos: &[i64]) {
    FORGET_PROGRESS.execute(args![task_nos]);
}

static NOTIFY: Statement = Statement::new(
    c"SELECT pg_catalog.pg_notify(taskq.task_channel(t.id),
                                  pg_catalog.json_build_object('task_id', t.id, 'status_code', $2)::text)
             IS NULL
        FROM taskq.task t WHERE t.task_no = ANY ($1) AND t.post_result",
    &[INT8ARRAYOID, TEXTOID],
);

/// Sends the notifications of those of the tasks that were inserted with `post_result`.
pub(crate) fn notify(task_nos: &[i64], outcome: Outcome) {
    if !task_nos.is_empty() {
        NOTIFY.execute(args![task_nos, outcome.name()]);
    }
}
