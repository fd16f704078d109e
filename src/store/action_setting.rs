//! The tables `action` and `action_setting`: names of actions, and what is set for them.

use crate::pg::statement::Statement;
use pgrx::datum::Interval;

use crate::pg::json::JsonText;
use crate::pg::session::check_for_interrupts;
use crate::pg::table::{Index, Key, Look, Row};

pub(crate) mod action {
    crate::pg::table::table!(c"action": ACTION_NO: i32, NAME: String, FORGOTTEN: bool);
}
crate::pg::table::table!(c"action_setting":
    NAME: String,
    PAUSED: bool,
    MAX_TRIES: Option<i32>,
    MAX_DURATION: Option<Interval>,
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
);

static ACTIONS: Index = Index::new(&action::TABLE, c"action_pkey");
static BY_ACTION_NAME: Index = Index::new(&action::TABLE, c"action_name_idx");
static SETTINGS: Index = Index::new(&TABLE, c"action_setting_pkey");

/// Calls `see` with each number that stands for one of the names, and with what is set for the name, if anything is.
pub(crate) fn each_of<'a>(
    look: &Look,
    names: impl Iterator<Item = &'a str>,
    mut see: impl FnMut(&'a str, i32, Option<&Row>),
) {
    look.scan(&BY_ACTION_NAME, |actions| {
        look.scan(&SETTINGS, |settings| {
            for name in names {
                check_for_interrupts();
                settings.start(&[Key::eq(1, name)]);
                let setting = settings.next();
                actions.start(&[Key::eq(1, name)]);
                while let Some(action) = actions.next() {
                    see(name, action.get(action::ACTION_NO), setting.as_ref());
                }
            }
        });
    });
}

/// The least number in use that stands for a name; whether its action is set to `notify`, and whether it gives lanes.
pub(crate) fn in_use(look: &Look, name: &str) -> (Option<i32>, bool, bool) {
    let number = look.scan(&BY_ACTION_NAME, |actions| {
        let mut least: Option<i32> = None;
        actions.start(&[Key::eq(1, name)]);
        while let Some(action) = actions.next() {
            if !action.get(action::FORGOTTEN) {
                let number = action.get(action::ACTION_NO);
                least = Some(least.map_or(number, |least| least.min(number)));
            }
        }
        least
    });
    let set = of_name(look, name, |row| (row.get(NOTIFY), row.get(FAIR) || row.get(MAX_PER_GROUP).is_some()));
    let (notify, gives_lanes) = set.unwrap_or((false, false));
    (number, notify, gives_lanes)
}

/// What is set for a name, if anything is.
fn of_name<T>(look: &Look, name: &str, read: impl FnOnce(&Row) -> T) -> Option<T> {
    look.first(&SETTINGS, &[Key::eq(1, name)], read)
}

/// What is set for the name that a number stands for, if anything is.
pub(crate) fn of_number<T>(look: &Look, action_no: i32, read: impl FnOnce(&Row) -> T) -> Option<T> {
    let name = look.first(&ACTIONS, &[Key::eq(1, action_no)], |row| row.get(action::NAME))?;
    of_name(look, &name, read)
}

pub(crate) static REMOVE: Statement<&str> =
    Statement::new(c"DELETE FROM taskq.action_setting s WHERE s.name = $1");

/// Makes the row if need be; waits for whoever is setting the same action.
pub(crate) static ENSURE: Statement<&str> =
    Statement::new(c"INSERT INTO taskq.action_setting (name) VALUES ($1) ON CONFLICT (name) DO NOTHING");

/// name, max_tries, max_duration, backoff; max_concurrency, rate_limit, rate_period, retention; notify, on_timeout,
/// max_timeouts, clear; retention_aborted, fair, max_per_group.
#[rustfmt::skip]
pub(crate) type Settings = (
    &'static str, i32, Interval, JsonText, i32, i32, Interval, Interval, bool, &'static str, i32, &'static [&'static str],
    Interval, bool, i32,
);

pub(crate) static SET: Statement<Settings, (Option<i32>, Option<i32>, Option<i32>)> = Statement::new(
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
                                                    ELSE s.retention_aborted END),
             fair = COALESCE($14, s.fair AND NOT 'fair' = ANY ($12)),
             max_per_group = COALESCE($15, CASE WHEN 'max_per_group' = ANY ($12) THEN NULL
                                                ELSE s.max_per_group END)
       WHERE s.name = $1
      RETURNING s.max_concurrency, s.rate_limit, s.max_per_group",
);

pub(crate) static SET_PAUSED: Statement<(&str, bool)> =
    Statement::new(c"UPDATE taskq.action_setting s SET paused = $2 WHERE s.name = $1 AND s.paused <> $2");
