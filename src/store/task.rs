//! The table `task`: what was asked for.

use pgrx::datum::Interval;

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::table::{Index, Key, Look, Row, table};

table!(c"task":
    TASK_NO: i64,
    ACTION_NO: i32,
    PRIORITY: i32,
    MAX_TRIES: Option<i32>,
    SPONTANEOUS: bool,
    POST_RESULT: bool,
    INSERTED_AT: Time,
    NOT_BEFORE: Option<Time>,
    MAX_DURATION: Option<Interval>,
    RETENTION: Option<Interval>,
    RETENTION_ABORTED: Option<Interval>,
    BACKOFF: Option<JsonText>,
    SEED: bool,
    ID: String,
    GROUP_ID: Option<String>,
    WORKGROUP: Option<String>,
    MERGE_KEY: Option<String>,
    UNIQUE_KEY: Option<String>,
    UNIQUE_UNTIL: Option<Time>,
    UNIQUE_STATES: Option<i16>,
    BODY: Option<String>,
    METADATA: Option<JsonText>,
);

/// By task_no.
pub(crate) static BY_NUMBER: Index = Index::new(&TABLE, c"task_pkey");
/// Whether each of the tasks is there, and has this id.
pub(crate) fn have_ids<'a>(look: &Look, tasks: impl Iterator<Item = (i64, &'a str)>) -> Vec<bool> {
    look.scan(&BY_NUMBER, |rows| {
        tasks
            .map(|(task_no, id)| rows.first(&[Key::eq(1, task_no)], |row| row.get(ID) == id) == Some(true))
            .collect()
    })
}

/// What the end of a task depends on.
pub(crate) struct AtTheEnd {
    pub(crate) action_no: i32,
    pub(crate) grouped: bool,
    /// Its end is announced.
    pub(crate) post_result: bool,
    pub(crate) retention: Option<Interval>,
    pub(crate) retention_aborted: Option<Interval>,
    pub(crate) unique_until: Option<Time>,
}

impl AtTheEnd {
    pub(crate) fn read(row: &Row) -> Self {
        AtTheEnd {
            action_no: row.get(ACTION_NO),
            grouped: row.get(GROUP_ID).is_some(),
            post_result: row.get(POST_RESULT),
            retention: row.get(RETENTION),
            retention_aborted: row.get(RETENTION_ABORTED),
            unique_until: row.get(UNIQUE_UNTIL),
        }
    }
}
