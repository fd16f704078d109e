//! The table `step`: results of the steps of durable tasks.
//!
//! Rows of a task are written by transactions that have its live row for themselves, or its end: one after the other.

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::statement::Statement;
use crate::pg::table::{pages_of, table};

table!(c"step":
    TASK_NO: TaskNo,
    POSITION: i32,
    NAME: String,
    NUM_TRY: i32,
    SAVED_AT: Time,
    RESULT: Option<JsonText>,
);

/// Whether there may be any, by what can be seen without a look: a queue without durable tasks has
/// none.
pub(crate) fn may_be_there() -> bool {
    pages_of(&TABLE) > 0
}

/// The result of a step, and where it stands among those of its task.
pub(crate) static FIND: Statement<(TaskNo, &str), (i32, Option<JsonText>)> =
    Statement::new(c"SELECT s.position, s.result FROM taskq.step s WHERE s.task_no = $1 AND s.name = $2");

/// Appends a step that is not there.
pub(crate) static APPEND: Statement<(TaskNo, &str, i32, Time, JsonText)> = Statement::new(
    c"INSERT INTO taskq.step (task_no, position, name, num_try, saved_at, result)
      VALUES ($1,
              COALESCE((SELECT s.position FROM taskq.step s WHERE s.task_no = $1 ORDER BY s.position DESC LIMIT 1), 0) + 1,
              $2, $3, $4, $5)",
);

/// Removes the steps of a task from a position on.
pub(crate) static REMOVE_FROM: Statement<(TaskNo, i32)> =
    Statement::new(c"DELETE FROM taskq.step s WHERE s.task_no = $1 AND s.position >= $2");

static FORGET: Statement<&[TaskNo]> = Statement::new(c"DELETE FROM taskq.step s WHERE s.task_no = ANY ($1)");

/// Removes the steps of tasks that go or begin anew. None is added meanwhile: the caller has the tasks.
pub(crate) fn forget(task_nos: &[TaskNo]) {
    if !task_nos.is_empty() && may_be_there() {
        FORGET.execute(task_nos);
    }
}
