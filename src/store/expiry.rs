//! The table `expiry`: when tasks expire that have not been granted by then.

use crate::number::TaskNo;
use crate::pg::statement::Statement;

static REMOVE: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.expiry e WHERE e.task_no = ANY ($1)");

/// These tasks do not expire any more. The caller has their live rows, where there are any.
pub(crate) fn forget(task_nos: &[TaskNo]) {
    if !task_nos.is_empty() {
        REMOVE.execute(task_nos);
    }
}
