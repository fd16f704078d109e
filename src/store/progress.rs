//! The table `progress`: what workers said of tasks that have not completed.

use crate::number::TaskNo;
use crate::pg::json::JsonText;
use crate::pg::statement::Statement;
use crate::pg::table::{Index, Look, look, table};

table!(c"progress":
    TASK_NO: TaskNo,
    PROGRESS: Option<f64>,
    STATUS: Option<String>,
    CHECKPOINT: Option<JsonText>,
);

static BY_NUMBER: Index = Index::of_mostly_empty(&TABLE, c"progress_pkey");

/// Removes what was reported of these tasks, which are this transaction's.
pub(crate) fn forget(task_nos: &[TaskNo]) {
    look(|look| {
        look.changing(&BY_NUMBER, |rows| {
            rows.of_each(TASK_NO, task_nos.iter().copied(), |_, row| row.delete_newest());
        });
    });
}

/// What the tries so far have left for the next one, of each of the tasks.
pub(crate) fn checkpoints(look: &Look, task_nos: impl Iterator<Item = TaskNo>) -> Vec<Option<JsonText>> {
    let found = look.scan(&BY_NUMBER, |rows| rows.of_each(TASK_NO, task_nos, |_, row| row.get(CHECKPOINT)));
    found.into_iter().map(Option::flatten).collect()
}

/// Keeps what was said of each of the tasks; the rest of a row that is there stays.
pub(crate) static SET_STATUS: Statement<(&[TaskNo], &[&str])> = Statement::new(
    c"INSERT INTO taskq.progress (task_no, status) SELECT * FROM unnest($1, $2)
      ON CONFLICT (task_no) DO UPDATE SET status = EXCLUDED.status",
);

/// Keeps what a worker reports: a text for people, how far it is (0 to 1), the checkpoint. NULL changes
/// nothing.
pub(crate) static REPORT: Statement<(TaskNo, &str, f64, JsonText)> = Statement::new(
    c"INSERT INTO taskq.progress AS p (task_no, status, progress, checkpoint) VALUES ($1, $2, $3, $4)
      ON CONFLICT (task_no) DO UPDATE
         SET status = COALESCE(EXCLUDED.status, p.status),
             progress = COALESCE(EXCLUDED.progress, p.progress),
             checkpoint = COALESCE(EXCLUDED.checkpoint, p.checkpoint)",
);
