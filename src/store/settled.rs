//! The table `settled`: how tasks ended.

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::table::table;

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
