//! Settings of actions: `set_action`, `pause_action`, `resume_action`, and what a claim needs of them.

use std::collections::{BTreeSet, HashMap};

use pgrx::datum::{AnyElement, Interval};
use pgrx::pg_sys::{
    BOOLOID, INT4ARRAYOID, INT4OID, INT8ARRAYOID, INTERVALOID, JSONBOID, TEXTARRAYOID, TEXTOID,
    TIMESTAMPTZOID,
};
use pgrx::prelude::*;

use super::backoff::Backoff;
use super::limits;
use crate::error::{Refusal, Result, or_throw, required};
use crate::pg::clock::{self, Time};
use crate::pg::json::JsonText;
use crate::pg::session::random_62_bits;
use crate::pg::statement::{Statement, args};
use crate::spec::{MAX_NAME, check_interval};
use crate::store::actions;
use crate::wake;

/// An action number with what is set for its name.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) action_no: i32,
    pub(crate) name: String,
    pub(crate) paused: bool,
    pub(crate) max_concurrency: Option<i32>,
    pub(crate) rate: Option<(i32, Interval)>,
}

impl Action {
    /// Whether neither a pause nor a limit keeps the next task of it from being granted.
    pub(crate) fn lets_one_go(&self, now: Time) -> bool {
        self.lets_one_go_in_time()
            && self
                .rate
                .is_none_or(|(limit, period)| limits::next_grant(&self.name, limit, period, now).is_none())
    }

    /// Whether time alone lets the next task of it go: now, or as its rate says. (A pause and full slots end with
    /// a commit that wakes.)
    pub(crate) fn lets_one_go_in_time(&self) -> bool {
        !self.paused && self.max_concurrency.is_none_or(|limit| limits::any_free(&self.name, limit))
    }

    /// Whether a claim has to ask the limits before it walks the action's range.
    pub(crate) fn is_limited(&self) -> bool {
        self.max_concurrency.is_some() || self.rate.is_some()
    }
}

static FOR_CLAIM: Statement = Statement::new(
    c"SELECT a.action_no, a.name, COALESCE(s.paused, false), s.max_concurrency, s.rate_limit, s.rate_period
        FROM taskq.action a
        LEFT JOIN LATERAL (SELECT s.* FROM taskq.action_setting s WHERE s.name = a.name OFFSET 0) AS s ON true
       WHERE a.name = ANY ($1)
       ORDER BY a.action_no",
    &[TEXTARRAYOID],
);

/// All numbers that stand for any of the names, with their settings.
pub(crate) fn for_claim(names: &[String]) -> Vec<Action> {
    FOR_CLAIM.query(args![names.iter().map(String::as_str).collect::<Vec<_>>()], |row| Action {
        action_no: row.need(1),
        name: row.need(2),
        paused: row.need(3),
        max_concurrency: row.get(4),
        rate: row.get(5).zip(row.get(6)),
    })
}

/// When a rate limit lets a task of these actions go, if one holds all of them back now.
pub(crate) fn next_grant(settings: &[Action], now: Time) -> Option<Time> {
    settings
        .iter()
        .filter(|a| !a.paused)
        .filter_map(|a| {
            let (limit, period) = a.rate?;
            limits::next_grant(&a.name, limit, period, now)
        })
        .min()
}

/// `taskq.set_action(action, max_tries, max_duration, backoff, max_concurrency, rate_limit, rate_period,
/// retention, notify, on_timeout, max_timeouts, clear, retention_aborted) -> void`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_set_action(
    action: Option<&str>,
    max_tries: Option<i32>,
    max_duration: Option<Interval>,
    backoff: Option<AnyElement>,
    max_concurrency: Option<i32>,
    rate_limit: Option<i32>,
    rate_period: Option<Interval>,
    retention: Option<Interval>,
    notify: Option<bool>,
    on_timeout: Option<&str>,
    max_timeouts: Option<i32>,
    clear: Option<Vec<Option<String>>>,
    retention_aborted: Option<Interval>,
) {
    or_throw((|| {
        let name = check_name(action)?;
        for (argument, value, least) in [
            ("max_tries", max_tries, 1),
            ("max_concurrency", max_concurrency, 0),
            ("rate_limit", rate_limit, 1),
            ("max_timeouts", max_timeouts, 1),
        ] {
            if value.is_some_and(|value| value < least) {
                let hint = format!("Give an integer from {least} up.");
                return Err(Refusal::out_of_range(argument, &value.unwrap_or(0).to_string(), &hint));
            }
        }
        for (argument, value) in [
            ("max_duration", max_duration),
            ("retention", retention),
            ("retention_aborted", retention_aborted),
            ("rate_period", rate_period),
        ] {
            check_interval(argument, value)?;
        }
        if rate_period.is_some_and(|period| period.as_micros() == 0) {
            return Err(Refusal::out_of_range(
                "rate_period",
                "0",
                "Give the time over which the limit refills.",
            ));
        }
        if let Some(on_timeout) = on_timeout.filter(|s| !["retry", "abort"].contains(s)) {
            return Err(Refusal::out_of_range("on_timeout", on_timeout, "Use 'retry' or 'abort'."));
        }
        let backoff = backoff.and_then(JsonText::from_argument);
        if let Some(json) = &backoff {
            Backoff::parse(&json.0).map_err(|what| {
                Refusal::out_of_range("backoff", &what, "Give {\"kind\", \"initial\", \"max\", \"jitter\"}.")
            })?;
        }
        let clear: Vec<String> = clear.unwrap_or_default().into_iter().flatten().collect();
        const CLEARABLE: [&str; 9] = [
            "max_tries",
            "max_duration",
            "backoff",
            "max_concurrency",
            "rate_limit",
            "retention",
            "retention_aborted",
            "max_timeouts",
            "on_timeout",
        ];
        if let Some(unknown) = clear.iter().find(|c| !CLEARABLE.contains(&c.as_str())) {
            let hint = format!("These can be cleared: {}.", CLEARABLE.join(", "));
            return Err(Refusal::out_of_range("clear", unknown, &hint));
        }
        set_action(&Settings {
            name,
            max_tries,
            max_duration,
            backoff,
            max_concurrency,
            rate_limit,
            rate_period,
            retention,
            retention_aborted,
            notify,
            on_timeout,
            max_timeouts,
            clear,
        })
    })());
}

fn check_name(action: Option<&str>) -> Result<&str> {
    let name = required("action", action)?;
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Refusal::out_of_range(
            "action",
            &format!("{} bytes long", name.len()),
            "Give a name of 1 to 1,000 bytes.",
        ));
    }
    Ok(name)
}

/// What is to be set; `None` keeps what was.
struct Settings<'a> {
    name: &'a str,
    max_tries: Option<i32>,
    max_duration: Option<Interval>,
    backoff: Option<JsonText>,
    max_concurrency: Option<i32>,
    rate_limit: Option<i32>,
    rate_period: Option<Interval>,
    retention: Option<Interval>,
    retention_aborted: Option<Interval>,
    notify: Option<bool>,
    on_timeout: Option<&'a str>,
    max_timeouts: Option<i32>,
    clear: Vec<String>,
}

/// Makes the row if need be; waits for whoever is setting the same action.
static ENSURE: Statement = Statement::new(
    c"INSERT INTO taskq.action_setting (name) VALUES ($1) ON CONFLICT (name) DO NOTHING",
    &[TEXTOID],
);
static LOCK: Statement = Statement::new(
    c"SELECT s.rate_limit, s.rate_period FROM taskq.action_setting s WHERE s.name = $1 FOR UPDATE",
    &[TEXTOID],
);
static SET: Statement = Statement::new(
    c"UPDATE taskq.action_setting s
         SET max_tries = COALESCE($2, CASE WHEN 'max_tries' = ANY ($12) THEN NULL ELSE s.max_tries END),
             max_duration = COALESCE($3, CASE WHEN 'max_duration' = ANY ($12) THEN NULL ELSE s.max_duration END),
             backoff = COALESCE($4, CASE WHEN 'backoff' = ANY ($12) THEN NULL ELSE s.backoff END),
             max_concurrency = COALESCE($5, CASE WHEN 'max_concurrency' = ANY ($12) THEN NULL
                                                 ELSE s.max_concurrency END),
             rate_limit = COALESCE($6, CASE WHEN 'rate_limit' = ANY ($12) THEN NULL ELSE s.rate_limit END),
             rate_period = COALESCE($7, CASE WHEN 'rate_limit' = ANY ($12) THEN NULL ELSE s.rate_period END),
             retention = COALESCE($8, CASE WHEN 'retention' = ANY ($12) THEN NULL ELSE s.retention END),
             notify = COALESCE($9, s.notify),
             on_timeout = COALESCE($10, CASE WHEN 'on_timeout' = ANY ($12) THEN 'retry' ELSE s.on_timeout END),
             max_timeouts = COALESCE($11, CASE WHEN 'max_timeouts' = ANY ($12) THEN NULL
                                               ELSE s.max_timeouts END),
             retention_aborted = COALESCE($13, CASE WHEN 'retention_aborted' = ANY ($12) THEN NULL
                                                    ELSE s.retention_aborted END)
       WHERE s.name = $1
      RETURNING s.max_concurrency, s.rate_limit",
    &[
        TEXTOID,
        INT4OID,
        INTERVALOID,
        JSONBOID,
        INT4OID,
        INT4OID,
        INTERVALOID,
        INTERVALOID,
        BOOLOID,
        TEXTOID,
        INT4OID,
        TEXTARRAYOID,
        INTERVALOID,
    ],
);
/// Slots up to the limit; those above it go once they are free. A task that was granted while there was no
/// limit gets the slot that it would have had, so that the limit counts it.
static MAKE_SLOTS: Statement = Statement::new(
    c"INSERT INTO taskq.slot (name, slot_no)
      SELECT $1, g.n FROM pg_catalog.generate_series(1, $2) AS g(n)
      ON CONFLICT (name, slot_no) DO NOTHING",
    &[TEXTOID, INT4OID],
);
static DROP_SLOTS: Statement = Statement::new(
    c"DELETE FROM taskq.slot s WHERE s.name = $1 AND s.slot_no > $2 AND s.task_no IS NULL",
    &[TEXTOID, INT4OID],
);
static HELD: Statement = Statement::new(
    c"SELECT r.task_no
        FROM taskq.action a
        JOIN taskq.run r ON r.action_no = a.action_no
       WHERE a.name = $1 AND NOT r.grantable AND NOT r.limited
       ORDER BY r.task_no FOR UPDATE OF r",
    &[TEXTOID],
);
static MARK_LIMITED: Statement =
    Statement::new(c"UPDATE taskq.run r SET limited = true WHERE r.task_no = ANY ($1)", &[INT8ARRAYOID]);
static SEAT: Statement = Statement::new(
    c"INSERT INTO taskq.slot (name, slot_no, task_no)
      SELECT $1, COALESCE((SELECT pg_catalog.max(s.slot_no) FROM taskq.slot s WHERE s.name = $1), 0) + u.n, u.task_no
        FROM pg_catalog.unnest($2) WITH ORDINALITY AS u(task_no, n)",
    &[TEXTOID, INT8ARRAYOID],
);
static FILL_BUCKET: Statement = Statement::new(
    c"INSERT INTO taskq.bucket AS b (name, level, measured_at) VALUES ($1, $2, $3)
      ON CONFLICT (name) DO UPDATE SET level = LEAST(b.level, EXCLUDED.level)",
    &[TEXTOID, pg_sys::FLOAT8OID, TIMESTAMPTZOID],
);
static EMPTY_BUCKET: Statement = Statement::new(c"DELETE FROM taskq.bucket b WHERE b.name = $1", &[TEXTOID]);

fn set_action(settings: &Settings) -> Result<()> {
    let name = settings.name;
    ENSURE.execute(args![name]);
    let (limit, period): (Option<i32>, Option<Interval>) =
        LOCK.first(args![name], |row| (row.get(1), row.get(2))).unwrap_or((None, None));
    if settings.rate_limit.or(limit).is_some() != settings.rate_period.or(period).is_some() {
        return Err(Refusal::out_of_range(
            "rate_limit",
            "given without \"rate_period\", or the other way round",
            "A rate needs both: how many, and over what time.",
        ));
    }
    let set: Option<(Option<i32>, Option<i32>)> = SET.first(
        args![
            name,
            settings.max_tries,
            settings.max_duration,
            settings.backoff.clone(),
            settings.max_concurrency,
            settings.rate_limit,
            settings.rate_period,
            settings.retention,
            settings.notify,
            settings.on_timeout,
            settings.max_timeouts,
            settings.clear.clone(),
            settings.retention_aborted,
        ],
        |row| (row.get(1), row.get(2)),
    );
    let (max_concurrency, rate_limit) = set.unwrap_or((None, None));
    if settings.max_concurrency.is_some() || !settings.clear.is_empty() {
        resize_slots(name, max_concurrency);
    }
    match rate_limit {
        Some(limit) => {
            FILL_BUCKET.execute(args![name, f64::from(limit), clock::now()]);
        }
        None => {
            EMPTY_BUCKET.execute(args![name]);
        }
    }
    wake_all(name);
    Ok(())
}

/// Makes the slots fit the limit. Performances that began without one are seated first, above the limit
/// where it is full, so that they count.
fn resize_slots(name: &str, max_concurrency: Option<i32>) {
    let Some(limit) = max_concurrency else {
        DROP_SLOTS.execute(args![name, 0]);
        return;
    };
    let held: Vec<i64> = HELD.query(args![name], |row| row.need(1));
    MAKE_SLOTS.execute(args![name, limit]);
    if !held.is_empty() {
        let free = limits::free_slots(name, limit, held.len() as i32);
        let (seated, standing) = held.split_at(free.len().min(held.len()));
        limits::occupy(name, &free, seated);
        if !standing.is_empty() {
            SEAT.execute(args![name, standing]);
        }
        MARK_LIMITED.execute(args![held]);
    }
    DROP_SLOTS.execute(args![name, limit]);
}

static SET_PAUSED: Statement = Statement::new(
    c"UPDATE taskq.action_setting s SET paused = $2 WHERE s.name = $1 AND s.paused <> $2",
    &[TEXTOID, BOOLOID],
);

/// `taskq.pause_action(action) -> boolean`
#[pg_extern(sql = "")]
fn taskq_pause_action(action: Option<&str>) -> bool {
    or_throw((|| {
        let name = check_name(action)?;
        ENSURE.execute(args![name]);
        Ok(SET_PAUSED.execute(args![name, true]) > 0)
    })())
}

/// `taskq.resume_action(action) -> boolean`
#[pg_extern(sql = "")]
fn taskq_resume_action(action: Option<&str>) -> bool {
    or_throw((|| {
        let name = check_name(action)?;
        if KNOWN.first(args![name], |row| row.need::<bool>(1)) != Some(true) {
            return Err(Refusal::no_such("action setting", name));
        }
        let resumed = SET_PAUSED.execute(args![name, false]) > 0;
        wake_all(name);
        Ok(resumed)
    })())
}

static KNOWN: Statement = Statement::new(
    c"SELECT EXISTS (SELECT FROM taskq.action_setting s WHERE s.name = $1)
          OR EXISTS (SELECT FROM taskq.action a WHERE a.name = $1)",
    &[TEXTOID],
);

/// Wakes all who wait for tasks of an action: what holds them back has changed.
fn wake_all(name: &str) {
    for action_no in actions::numbers(&[name.to_owned()]) {
        wake::ready_for_all(action_no);
    }
}

static BACKOFFS: Statement = Statement::new(
    c"SELECT t.task_no, COALESCE(t.backoff, s.backoff)
        FROM taskq.task t
        JOIN taskq.action a ON a.action_no = t.action_no
        LEFT JOIN taskq.action_setting s ON s.name = a.name
       WHERE t.task_no = ANY ($1) AND (t.backoff IS NOT NULL OR s.backoff IS NOT NULL)",
    &[INT8ARRAYOID],
);

/// How long each of the tasks, with its number of tries, waits for its next try, in microseconds.
pub(crate) fn backoffs(tries: &[(i64, i32)]) -> HashMap<i64, i64> {
    let task_nos: Vec<i64> = tries.iter().map(|(n, _)| *n).collect();
    let tries: HashMap<i64, i32> = tries.iter().copied().collect();
    BACKOFFS
        .query(args![task_nos], |row| (row.need::<i64>(1), row.need::<JsonText>(2)))
        .into_iter()
        .filter_map(|(n, json)| {
            let chance = random_62_bits() as f64 / (1_i64 << 62) as f64;
            Some((n, Backoff::parse(&json.0).ok()?.delay(tries[&n], chance)))
        })
        .collect()
}

/// What limits the tries of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TryLimits {
    pub(crate) max_tries: Option<i32>,
    pub(crate) max_timeouts: Option<i32>,
}

static TRY_LIMITS: Statement = Statement::new(
    c"SELECT t.task_no, COALESCE(t.max_tries, s.max_tries),
             CASE s.on_timeout WHEN 'abort' THEN 1 ELSE s.max_timeouts END
        FROM taskq.task t
        JOIN taskq.action a ON a.action_no = t.action_no
        LEFT JOIN taskq.action_setting s ON s.name = a.name
       WHERE t.task_no = ANY ($1) AND (t.max_tries IS NOT NULL OR s.name IS NOT NULL)",
    &[INT8ARRAYOID],
);

/// What limits the tries of these tasks, where anything does.
pub(crate) fn try_limits(task_nos: &[i64]) -> HashMap<i64, TryLimits> {
    TRY_LIMITS
        .query(args![task_nos], |row| {
            (row.need(1), TryLimits { max_tries: row.get(2), max_timeouts: row.get(3) })
        })
        .into_iter()
        .collect()
}

static NOTIFY: Statement = Statement::new(
    c"SELECT pg_catalog.pg_notify(taskq.action_channel(s.name),
                                  pg_catalog.json_build_object('action', s.name)::text) IS NULL
        FROM taskq.action a
        JOIN taskq.action_setting s ON s.name = a.name
       WHERE a.action_no = ANY ($1) AND s.notify",
    &[INT4ARRAYOID],
);

/// Notifies the listeners of those of the actions that are set to `notify`: tasks of them are ready.
/// Postgres sends equal notifications of a transaction once.
pub(crate) fn notify_ready(action_nos: &BTreeSet<i32>) {
    NOTIFY.execute(args![action_nos.iter().copied().collect::<Vec<_>>()]);
}
