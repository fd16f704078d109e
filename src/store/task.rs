//! The table `task`: what was asked for.

use std::collections::HashSet;

use pgrx::datum::Interval;

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::table::{Index, Key, Look, Row, look, table};

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

/// Those of the tasks that the queue completes itself.
pub(crate) fn spontaneous(task_nos: impl Iterator<Item = i64>) -> HashSet<i64> {
    look(|look| {
        look.scan(&BY_NUMBER, |rows| {
            task_nos
                .filter(|n| rows.first(&[Key::eq(1, *n)], |row| row.get(SPONTANEOUS)) == Some(true))
                .collect()
        })
    })
}

/// What a task that nothing blocks any more is put into its place by.
pub(crate) struct Placed {
    pub(crate) action_no: i32,
    pub(crate) priority: i32,
    pub(crate) not_before: Option<Time>,
    pub(crate) max_duration: Option<Interval>,
    pub(crate) group: Option<String>,
    pub(crate) merge_key: Option<String>,
    /// It has a group, a workgroup or a merge key.
    pub(crate) gated: bool,
}

impl Placed {
    fn read(row: &Row) -> Self {
        let (group, merge_key) = (row.get(GROUP_ID), row.get(MERGE_KEY));
        Placed {
            action_no: row.get(ACTION_NO),
            priority: row.get(PRIORITY),
            not_before: row.get(NOT_BEFORE),
            max_duration: row.get(MAX_DURATION),
            gated: group.is_some() || merge_key.is_some() || row.get(WORKGROUP).is_some(),
            group,
            merge_key,
        }
    }
}

/// The same of each of the tasks, which are there.
pub(crate) fn placed(look: &Look, task_nos: impl Iterator<Item = i64>) -> Vec<Placed> {
    look.scan(&BY_NUMBER, |rows| {
        task_nos
            .map(|n| rows.first(&[Key::eq(1, n)], Placed::read))
            .map(|task| task.unwrap_or_else(|| pgrx::error!("a task that is to be ready is gone")))
            .collect()
    })
}
