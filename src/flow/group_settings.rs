//! What a claim needs of the settings of groups.

use std::collections::HashMap;

use crate::pg::statement::Statement;

static LIMITS: Statement<&[&str], (String, i32)> = Statement::new(
    c"SELECT g.group_id, g.max_concurrency FROM taskq.task_group g
       WHERE g.group_id = ANY ($1) AND g.max_concurrency IS NOT NULL",
);

/// The limits of those of the groups that have one of their own.
pub(crate) fn limits(groups: Vec<String>) -> HashMap<String, i32> {
    if groups.is_empty() {
        return HashMap::new();
    }
    LIMITS.query(groups).into_iter().collect()
}
