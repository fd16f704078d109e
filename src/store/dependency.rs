//! The table `dependency`: which task runs after which.

use crate::number::TaskNo;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::pg::table::{self, Index, Key, look, table};
use crate::state::Condition;

table!(c"dependency":
    AFTER_NO: TaskNo,
    RUN_NO: TaskNo,
    CONDITION: i8,
);

/// By after_no, run_no.
static BY_AFTER: Index = Index::new(&TABLE, c"dependency_pkey");

/// What waits for these tasks, which have just ended: the task that ended, the one that waits, and for what.
///
/// To be called after the tasks' live rows were removed: the snapshot is taken here, and whoever added an edge to one of
/// them held its row, so that edge is committed and seen.
pub(crate) fn waiting_for(task_nos: &[TaskNo]) -> Vec<(TaskNo, TaskNo, Condition)> {
    look(|look| {
        look.scan(&BY_AFTER, |edges| {
            let mut found = Vec::new();
            for task_no in task_nos {
                edges.start(&[Key::eq(1, *task_no)]);
                while let Some(edge) = edges.next() {
                    let condition = Condition::from_stored(edge.get(CONDITION));
                    found.push((edge.get(AFTER_NO), edge.get(RUN_NO), condition));
                }
            }
            found
        })
    })
}

/// Inserts edges that are not there: the task after which, the one that runs, and for what it waits.
pub(crate) fn insert(edges: impl Iterator<Item = (TaskNo, TaskNo, Condition)>) {
    table::insert(&TABLE, |into| {
        for (after, run, condition) in edges {
            check_for_interrupts();
            into.row(|| [AFTER_NO.to(after), RUN_NO.to(run), CONDITION.to(condition.stored())]);
        }
    });
}

pub(crate) static REMOVE_AFTER: Statement<&[TaskNo], (TaskNo, TaskNo)> = Statement::new(
    c"DELETE FROM taskq.dependency d WHERE d.after_no = ANY ($1) RETURNING d.after_no, d.run_no",
);

pub(crate) static REMOVE_RUN: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.run_no = ANY ($1)");

pub(crate) static REMOVE_BETWEEN: Statement<(&[TaskNo], &[TaskNo])> =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.after_no = ANY ($1) AND d.run_no = ANY ($2)");
