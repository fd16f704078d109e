//! PLACEHOLDER, to be replaced by the file of the same name that suspending brings: only what time needs of it.

use super::{release_or_complete, settle, without_open};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::store::live::{self, Live};

/// Suspended tasks whose time is over, so many at most.
static OVERDUE: Statement<(i32, Time), TaskNo> = Statement::new(
    c"SELECT b.task_no FROM taskq.blocked b
       WHERE b.since IS NOT NULL AND b.until <= $2 ORDER BY b.until LIMIT $1",
);

/// Frees suspended tasks whose time is over, so many at most; how many.
pub(crate) fn free_overdue(limit: i32, now: Time) -> usize {
    let task_nos = OVERDUE.query((limit, now));
    if task_nos.is_empty() {
        return 0;
    }
    let mut rows: Vec<Live> = live::try_lock(&task_nos).into_values().collect();
    live::remove(&rows);
    without_open(rows.iter_mut());
    let count = rows.len();
    settle(release_or_complete(rows, now), now);
    count
}
