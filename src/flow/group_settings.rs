//! What a claim needs of the settings of groups.

use std::collections::HashMap;

use pgrx::pg_sys::TEXTARRAYOID;

use crate::pg::statement::{Statement, args};

static LIMITS: Statement = Statement::new(
    c"SELECT g.group_id, g.max_concurrency FROM taskq.task_group g
       WHERE g.group_id = ANY ($1) AND g.max_concurrency IS NOT NULL",
    &[TEXTARRAYOID],
);

/// The limits of those of the groups that have one of their own.
pub(crate) fn limits(groups: Vec<String>) -> HashMap<String, i32> {
    if groups.is_empty() {
        return HashMap::new();
    }
    LIMITS.query(args![groups], |row| (row.need(1), row.need(2))).into_iter().collect()
}
