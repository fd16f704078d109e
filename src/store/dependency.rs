//! The table `dependency`: which task runs after which.

use crate::number::TaskNo;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::pg::table::{self, Index, Key, Number as _, look, table};
use crate::state::Condition;

table!(c"dependency":
    AFTER_NO: TaskNo,
    RUN_NO: TaskNo,
    CONDITION: i8,
);

/// By after_no, run_no.
static BY_AFTER: Index = Index::of_mostly_empty(&TABLE, c"dependency_pkey");

/// What waits for these tasks, which have just ended: the task that ended, the one that waits, and for what.
///
/// To be called after the tasks' live rows were removed: the snapshot is taken here, and whoever added an edge to one of
/// them held its row, so that edge is committed and seen.
pub(crate) fn waiting_for(task_nos: &[TaskNo]) -> Vec<(TaskNo, TaskNo, Condition)> {
    let mut task_nos = task_nos.to_vec();
    task_nos.sort_unstable();
    look(|look| {
        look.scan(&BY_AFTER, |edges| {
            let mut found = Vec::new();
            // One walk for all that have been inserted one after the other: nothing lies in between.
            for some in task_nos.chunk_by(|one, next| one.distance(*next) <= 1) {
                check_for_interrupts();
                edges.start(&[Key::at_least(1, some[0]), Key::at_most(1, some[some.len() - 1])]);
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
