//! The table `settled`: how tasks ended.

use std::cell::Cell;

use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::statement::{Statement, sql};
use crate::pg::table::{Index, Key, Look, table};
use crate::store::ends::uncounted;
use pgrx::datum::Interval;

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

/// What had settled before it was replaced is counted no more, either.
pub(crate) static KEEP_EPITAPHS: Statement<(&[i64], Time, Interval)> = Statement::new(
    sql!(
        "WITH gone AS MATERIALIZED (
        SELECT s.task_no, s.settled_at, s.action_no, s.code, s.cause FROM taskq.settled s WHERE s.task_no = ANY ($1)),
      ",
        uncounted!("gone"),
        "
      UPDATE taskq.settled s SET expires_at = $2 OPERATOR(pg_catalog.+) $3, cause = 'r'
       WHERE s.task_no = ANY ($1)"
    ),
);

pub(crate) static REMOVE: Statement<&[i64], (i64, i32, i8, bool)> = Statement::new(sql!(
    "WITH gone AS (
        DELETE FROM taskq.settled s WHERE s.task_no = ANY ($1)
        RETURNING s.task_no, s.dependencies, s.grouped, s.settled_at, s.action_no, s.code, s.cause),
      ",
    uncounted!("gone"),
    "
      SELECT g.task_no, g.dependencies, g.code, g.grouped FROM gone AS g"
));

thread_local! {
    /// How many tasks this backend has settled since it last removed some. A hint.
    static SETTLED: Cell<usize> = const { Cell::new(0) };
}

/// So many tasks have settled: whoever claims removes old ones in proportion.
pub(crate) fn note(many: usize) {
    SETTLED.set(SETTLED.get().saturating_add(many));
}

/// How many have settled since this was asked last.
pub(crate) fn take_noted() -> usize {
    SETTLED.take()
}
