//! The table `progress`: what workers said of tasks that have not completed.

use crate::pg::json::JsonText;
use crate::pg::table::{Index, Key, Look, look, table};

table!(c"progress":
    TASK_NO: i64,
    PROGRESS: Option<f64>,
    STATUS: Option<String>,
    CHECKPOINT: Option<JsonText>,
);

static BY_NUMBER: Index = Index::new(&TABLE, c"progress_pkey");

/// Removes what was reported of these tasks, which are this transaction's.
pub(crate) fn forget(task_nos: &[i64]) {
    look(|look| {
        look.changing(&BY_NUMBER, |rows| {
            for task_no in task_nos {
                rows.start(&[Key::eq(1, *task_no)]);
                if let Some(row) = rows.next() {
                    row.delete_newest();
                }
            }
        });
    });
}

/// What the tries so far have left for the next one, of each of the tasks.
pub(crate) fn checkpoints(look: &Look, task_nos: impl Iterator<Item = i64>) -> Vec<Option<JsonText>> {
    look.scan(&BY_NUMBER, |rows| {
        task_nos
            .map(|task_no| rows.first(&[Key::eq(1, task_no)], |row| row.get(CHECKPOINT)).flatten())
            .collect()
    })
}
