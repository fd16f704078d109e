//! The table `dependency`: which task runs after which.

use crate::pg::statement::Statement;
use crate::pg::table::{Index, Key, look, table};
use crate::state::Condition;

table!(c"dependency":
    AFTER_NO: i64,
    RUN_NO: i64,
    CONDITION: i8,
);

/// By after_no, run_no.
static BY_AFTER: Index = Index::new(&TABLE, c"dependency_pkey");

/// What waits for these tasks, which have just ended: the task that ended, the one that waits, and for what.
///
/// To be called after the tasks' live rows were removed: the snapshot is taken here, and whoever added an edge to one of
/// them held its row, so that edge is committed and seen.
pub(crate) fn waiting_for(task_nos: &[i64]) -> Vec<(i64, i64, Condition)> {
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

pub(crate) static INSERT: Statement<(&[i64], &[i64], &[i8])> = Statement::new(
    c"INSERT INTO taskq.dependency (after_no, run_no, condition) SELECT * FROM unnest($1, $2, $3)",
);

pub(crate) static REMOVE_AFTER: Statement<&[i64], (i64, i64)> = Statement::new(
    c"DELETE FROM taskq.dependency d WHERE d.after_no = ANY ($1) RETURNING d.after_no, d.run_no",
);

pub(crate) static REMOVE_RUN: Statement<&[i64]> =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.run_no = ANY ($1)");

pub(crate) static REMOVE_BETWEEN: Statement<(&[i64], &[i64])> =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.after_no = ANY ($1) AND d.run_no = ANY ($2)");
