//! The tables `action` and `action_setting`: names of actions, and what is set for them.
//!
//! A call that changes them announces it first, since other backends keep what they have read
//! ([`known_actions`](super::known_actions)).

use pgrx::datum::Interval;

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Given, Statement};
use crate::pg::table::{Index, Key, Look, Row};
use crate::pg::table_changes::will_change;

pub(crate) mod action {
    crate::pg::table::table!(c"action": ACTION_NO: i32, NAME: String, FORGOTTEN: bool);
}
crate::pg::table::table!(c"action_setting":
    NAME: String,
    PAUSED: bool,
    MAX_TRIES: Option<i32>,
    LEASE: Option<Interval>,
    BACKOFF: Option<JsonText>,
    MAX_CONCURRENCY: Option<i32>,
    RATE_LIMIT: Option<i32>,
    RATE_PERIOD: Option<Interval>,
    RETENTION: Option<Interval>,
    RETENTION_ABORTED: Option<Interval>,
    NOTIFY: bool,
    ON_TIMEOUT: String,
    MAX_TIMEOUTS: Option<i32>,
    FAIR: bool,
    MAX_PER_GROUP: Option<i32>,
    EXPIRES_IN: Option<Interval>,
    MAX_RUN_TIME: Option<Interval>,
    STOPPED_AT: Option<Time>,
);

static ACTIONS: Index = Index::new(&action::TABLE, c"action_pkey");
static BY_ACTION_NAME: Index = Index::new(&action::TABLE, c"action_name_idx");
static SETTINGS: Index = Index::new(&TABLE, c"action_setting_pkey");

/// What a session keeps of what is set for an action. By default nothing is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setting {
    /// None of its tasks is granted.
    pub(crate) paused: bool,
    /// The lease of tasks that say nothing about it, where the claim says nothing either.
    pub(crate) lease: Option<Interval>,
    /// How many of its tasks may be in progress; `None`: any number.
    pub(crate) max_concurrency: Option<i32>,
    /// How many grants it allows, and in which time; `None`: any number.
    pub(crate) rate: Option<(i32, Interval)>,
    /// How long tasks are kept once they have completed, if they say nothing about it; `None`: what the
    /// setting says.
    pub(crate) retention: Option<Interval>,
    /// The same of those that have aborted; `None`: as `retention`, if that is set, else what the setting says of them.
    pub(crate) retention_aborted: Option<Interval>,
    /// Tasks that become ready are announced by NOTIFY.
    pub(crate) notify: bool,
    /// Its groups take turns.
    pub(crate) fair: bool,
    /// How many tasks of one group may be in progress.
    pub(crate) max_per_group: Option<i32>,
    /// After how long a task that is not spontaneous expires, if it has not been granted (a signal: signalled) and says nothing
    /// about it.
    pub(crate) expires_in: Option<Interval>,
    /// The longest that a try lasts of tasks that say nothing about it.
    pub(crate) max_run_time: Option<Interval>,
}

impl Setting {
    /// Whether every task of the action that has a group belongs into the lane of that.
    pub(crate) fn gives_lanes(&self) -> bool {
        self.fair || self.max_per_group.is_some()
    }

    fn read(row: &Row) -> Self {
        Setting {
            paused: row.get(PAUSED),
            lease: row.get(LEASE),
            max_concurrency: row.get(MAX_CONCURRENCY),
            rate: row.get(RATE_LIMIT).zip(row.get(RATE_PERIOD)),
            retention: row.get(RETENTION),
            retention_aborted: row.get(RETENTION_ABORTED),
            notify: row.get(NOTIFY),
            fair: row.get(FAIR),
            max_per_group: row.get(MAX_PER_GROUP),
            expires_in: row.get(EXPIRES_IN),
            max_run_time: row.get(MAX_RUN_TIME),
        }
    }
}

/// A name of actions: what stands for it, and what is set for it.
#[derive(Debug)]
pub(crate) struct Named {
    /// The name that tasks are inserted and claimed with.
    pub(crate) name: String,
    /// All numbers that stand for it, in ascending order.
    pub(crate) action_nos: Vec<i32>,
    /// The least of them that new tasks may have.
    pub(crate) in_use: Option<i32>,
    /// What is set for it.
    pub(crate) setting: Setting,
}

/// What there is of a name.
pub(crate) fn named(look: &Look, name: &str) -> Named {
    let mut numbers: Vec<(i32, bool)> = look.scan(&BY_ACTION_NAME, |actions| {
        actions.start(&[Key::eq(1, name)]);
        let mut numbers = Vec::new();
        while let Some(action) = actions.next() {
            check_for_interrupts();
            numbers.push((action.get(action::ACTION_NO), action.get(action::FORGOTTEN)));
        }
        numbers
    });
    numbers.sort_unstable();
    let setting = look.first(&SETTINGS, &[Key::eq(1, name)], Setting::read).unwrap_or_default();
    Named {
        name: name.to_owned(),
        in_use: numbers.iter().find(|(_, forgotten)| !forgotten).map(|(n, _)| *n),
        action_nos: numbers.into_iter().map(|(n, _)| n).collect(),
        setting,
    }
}

/// The name that a number stands for.
pub(crate) fn name_of(look: &Look, action_no: i32) -> Option<String> {
    look.first(&ACTIONS, &[Key::eq(1, action_no)], |row| row.get(action::NAME))
}

static REMOVE_SETTINGS: Statement<&str> =
    Statement::new(c"DELETE FROM taskq.action_setting s WHERE s.name = $1");

/// Nothing is set for the name any more.
pub(crate) fn remove(name: &str) {
    will_change(&TABLE);
    REMOVE_SETTINGS.execute(name);
}

static ENSURE: Statement<&str> =
    Statement::new(c"INSERT INTO taskq.action_setting (name) VALUES ($1) ON CONFLICT (name) DO NOTHING");

/// Makes the row if need be; waits for a transaction that is making, changing or removing it.
pub(crate) fn ensure(name: &str) {
    will_change(&TABLE);
    ENSURE.execute(name);
}

/// name, max_tries, lease, backoff; max_concurrency, rate_limit, rate_period, retention; notify, on_timeout,
/// max_timeouts, clear; retention_aborted, fair, max_per_group, expires_in, max_run_time.
#[rustfmt::skip]
pub(crate) type Settings = (
    &'static str, i32, Interval, JsonText, i32, i32, Interval, Interval, bool, &'static str, i32, &'static [&'static str],
    Interval, bool, i32, Interval, Interval,
);

static CHANGE_SETTINGS: Statement<Settings, (Option<i32>, Option<i32>, Option<i32>)> = Statement::new(
    c"UPDATE taskq.action_setting s
         SET max_tries = COALESCE($2, CASE WHEN 'max_tries' = ANY ($12) THEN NULL ELSE s.max_tries END),
             lease = COALESCE($3, CASE WHEN 'lease' = ANY ($12) THEN NULL ELSE s.lease END),
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
                                                    ELSE s.retention_aborted END),
             fair = COALESCE($14, s.fair AND NOT 'fair' = ANY ($12)),
             max_per_group = COALESCE($15, CASE WHEN 'max_per_group' = ANY ($12) THEN NULL
                                                ELSE s.max_per_group END),
             expires_in = COALESCE($16, CASE WHEN 'expires_in' = ANY ($12) THEN NULL ELSE s.expires_in END),
             max_run_time = COALESCE($17, CASE WHEN 'max_run_time' = ANY ($12) THEN NULL ELSE s.max_run_time END)
       WHERE s.name = $1
      RETURNING s.max_concurrency, s.rate_limit, s.max_per_group",
);

/// Sets what is given, and clears what is named; returns the limits that the action has then.
pub(crate) fn set(settings: impl Given<Settings>) -> (Option<i32>, Option<i32>, Option<i32>) {
    will_change(&TABLE);
    CHANGE_SETTINGS.first(settings).unwrap_or_default()
}

/// Of a row that is this transaction's.
static NOTE_STOP: Statement<(&str, Time)> = Statement::new(
    c"UPDATE taskq.action_setting s SET stopped_at = CASE WHEN s.stopped_at IS NULL THEN $2 END
       WHERE s.name = $1 AND (s.stopped_at IS NULL) = (s.paused OR s.max_concurrency IS NOT DISTINCT FROM 0)",
);

/// Notes since when none of the tasks of the action is granted, or that it is not so; to be called after each change that may make it
/// so or end it.
pub(crate) fn note_stop(name: &str, now: Time) {
    NOTE_STOP.execute((name, now));
}

static SET_PAUSED: Statement<(&str, bool)> =
    Statement::new(c"UPDATE taskq.action_setting s SET paused = $2 WHERE s.name = $1 AND s.paused <> $2");

/// Whether it was not so before.
pub(crate) fn set_paused(name: &str, paused: bool) -> bool {
    will_change(&TABLE);
    SET_PAUSED.execute((name, paused)) > 0
}
