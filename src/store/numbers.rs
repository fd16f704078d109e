//! Ids of tasks, and their numbers.

use std::collections::HashMap;

use crate::number::TaskNo;
use crate::pg::statement::Statement;
use crate::pg::table::{self, Look};
use crate::store::positions::{file_of_positions, last_position};
use crate::store::{decided, run, task};

/// What the marks need of a look: how far positions have been taken by now, up to where everything has ended, and the like.
pub(crate) fn look(look: &Look) -> decided::Look {
    decided::Look {
        last_position: last_position(),
        files: (table::file_of(&run::TABLE), file_of_positions()),
        xmin: look.xmin(),
    }
}

/// The numbers of those of the ids that are in the queue. Takes no lock that lasts but that of a reader on the table.
pub(crate) fn by_id(ids: &[&str]) -> HashMap<String, TaskNo> {
    if ids.is_empty() {
        return HashMap::new();
    }
    table::look(|look| task::numbers(look, ids))
}

static IDS: Statement<&[TaskNo], (TaskNo, String)> =
    Statement::new(c"SELECT t.task_no, t.id FROM taskq.task t WHERE t.task_no = ANY ($1)");

/// The ids of tasks, by number.
pub(crate) fn ids(task_nos: &[TaskNo]) -> HashMap<TaskNo, String> {
    if task_nos.is_empty() {
        return HashMap::new();
    }
    IDS.query(task_nos).into_iter().collect()
}
