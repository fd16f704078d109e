//! The table `settled`: how tasks ended.

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::table::{Index, Key, Look, table};

table!(c"settled":
    TASK_NO: i64,
    EXPIRES_AT: Time,
    SETTLED_AT: Time,
    GRANTED_AT: Option<Time>,
    TRIES: i32,
    FAILURES: i32,
    DEPENDENCIES: i32,
    SIGNALS: i32,
    ACTION_NO: i32,
    GROUPED: bool,
    CODE: i8,
    CAUSE: i8,
    ACTOR_ID: Option<String>,
    STATUS: Option<String>,
    RESULT: Option<JsonText>,
    LEADER_NO: Option<i64>,
);

static BY_EXPIRY: Index = Index::new(&TABLE, c"settled_expires_idx");

/// The first end of a retention from a time on that has passed.
pub(crate) fn first_expired(look: &Look, from: Time, now: Time) -> Option<Time> {
    look.first(&BY_EXPIRY, &[Key::at_least(1, from), Key::at_most(1, now)], |row| row.get(EXPIRES_AT))
}
