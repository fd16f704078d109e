//! The table `expiry`: when tasks expire that have not been granted.

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::pg::table::{pages_of, table};

table!(c"expiry":
    TASK_NO: TaskNo,
    DUE: Time,
);

static FORGET: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.expiry e WHERE e.task_no = ANY ($1)");

/// These do not expire any more.
pub(crate) fn forget(task_nos: &[TaskNo]) {
    if !task_nos.is_empty() && pages_of(&TABLE) > 0 {
        FORGET.execute(task_nos);
    }
}
