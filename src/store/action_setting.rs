//! The tables `action` and `action_setting`: names of actions, and what is set for them.

use pgrx::datum::Interval;

use crate::pg::json::JsonText;
use crate::pg::table::{Index, Key, Look, Row};

mod action {
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

/// The numbers that stand for a name.
pub(crate) fn numbers(look: &Look, name: &str) -> Vec<i32> {
    look.all(&BY_ACTION_NAME, &[Key::eq(1, name)], |row| row.get(action::ACTION_NO))
}

/// What is set for a name, if anything is.
pub(crate) fn of_name<T>(look: &Look, name: &str, read: impl FnOnce(&Row) -> T) -> Option<T> {
    look.first(&SETTINGS, &[Key::eq(1, name)], read)
}

/// What is set for the name that a number stands for, if anything is.
pub(crate) fn of_number<T>(look: &Look, action_no: i32, read: impl FnOnce(&Row) -> T) -> Option<T> {
    let name = look.first(&ACTIONS, &[Key::eq(1, action_no)], |row| row.get(action::NAME))?;
    of_name(look, &name, read)
}
