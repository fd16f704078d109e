//! The table `signal`: signals that wait to be counted because the counter was busy.

use crate::pg::table::{Index, Look, table};

table!(c"signal":
    RUN_NO: i64,
    SATISFIED: i32,
    FAILED: i32,
    LOST: i32,
    LOST_STATUS: Option<String>,
);

/// By run_no.
static BY_TASK: Index = Index::new(&TABLE, c"signal_run_idx");

/// Whether there are any.
pub(crate) fn any(look: &Look) -> bool {
    look.first(&BY_TASK, &[], |_| ()).is_some()
}
