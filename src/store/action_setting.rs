//! The tables `action` and `action_setting`: names of actions, and what is set for them.

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

/// What is set for a name, if anything is.
fn of_name<T>(look: &Look, name: &str, read: impl FnOnce(&Row) -> T) -> Option<T> {
    look.first(&SETTINGS, &[Key::eq(1, name)], read)
}

/// What is set for the name that a number stands for, if anything is.
pub(crate) fn of_number<T>(look: &Look, action_no: i32, read: impl FnOnce(&Row) -> T) -> Option<T> {
    let name = look.first(&ACTIONS, &[Key::eq(1, action_no)], |row| row.get(action::NAME))?;
    of_name(look, &name, read)
}
