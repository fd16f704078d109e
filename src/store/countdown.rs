//! The table `countdown`: ends of dependencies that wait to be counted because the counter was not to be had.

use crate::number::{TaskNo, WaitNo};
use crate::pg::statement::Statement;
use crate::pg::table::{self, Index, Look, insert, pages_of, table};

table!(c"countdown":
    RUN_NO: TaskNo,
    WAIT_NO: WaitNo,
    SATISFIED: i32,
    FAILED: i32,
    LOST: i32,
    LOST_STATUS: Option<String>,
    SKIPPED: i32,
);

/// By run_no.
static BY_TASK: Index = Index::new(&TABLE, c"countdown_run_idx");

/// Whether there may be any, by what can be seen without a look: the table is empty most of the time.
pub(crate) fn may_be_there() -> bool {
    pages_of(&TABLE) > 0
}

/// Keeps other sessions from locking the table exclusively, until this transaction, or a subtransaction that is rolled back, ends.
pub(crate) fn hold() {
    table::hold(&TABLE);
}

/// Whether there are any.
pub(crate) fn any(look: &Look) -> bool {
    look.first(&BY_TASK, &[], |_| ()).is_some()
}

/// Removes the rows of these tasks.
pub(crate) static FORGET: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.countdown s WHERE s.run_no = ANY ($1)");

/// Takes the rows of these tasks, whose counters the caller has locked. The fields are those of [`Countdown`], the status before the
/// number of skipped ones.
pub(crate) static TAKE: Statement<&[TaskNo], (TaskNo, WaitNo, i32, i32, i32, Option<String>, i32)> =
    Statement::new(
        c"DELETE FROM taskq.countdown s WHERE s.run_no = ANY ($1)
      RETURNING s.run_no, s.wait_no, s.satisfied, s.failed, s.lost, s.lost_status, s.skipped",
    );

/// Rows of tasks that do not wait any more. It waits for no other transaction that is removing some of them; a task
/// that is brought back forgets its rows, and waits for this.
///
/// One statement, so that both questions are asked of one snapshot: a row that is there while its counter is not
/// is of a wait that is over, since its sender had seen the counter. (Asked one after the other, a
/// retry and a new row could come in between, and that one would be lost.)
pub(crate) static SWEEP: Statement<&[TaskNo]> = Statement::new(
    c"DELETE FROM taskq.countdown d
       WHERE d.ctid = ANY (ARRAY(
               SELECT s.ctid FROM taskq.countdown s
                WHERE s.run_no = ANY ($1)
                  AND NOT EXISTS (SELECT FROM taskq.blocked b WHERE b.task_no = s.run_no OFFSET 0)
                  FOR UPDATE SKIP LOCKED))",
);

/// What a task has to count that could not be counted.
pub(crate) struct Countdown<'a> {
    /// The task that waits.
    pub(crate) task_no: TaskNo,
    /// For which of its waits.
    pub(crate) wait_no: WaitNo,
    /// Dependencies that ended as they should.
    pub(crate) satisfied: i32,
    /// Of these and the lost ones, how many aborted.
    pub(crate) failed: i32,
    /// Dependencies that ended the wrong way.
    pub(crate) lost: i32,
    /// Why the task aborts, if it does for one that was lost.
    pub(crate) status: Option<&'a str>,
    /// Of the lost ones, how many were not needed.
    pub(crate) skipped: i32,
}

/// Leaves ends to a later call that counts.
pub(crate) fn append<'a>(rows: impl Iterator<Item = Countdown<'a>>) {
    insert(&TABLE, |into| {
        for row in rows {
            into.row(|| {
                [
                    RUN_NO.to(row.task_no),
                    WAIT_NO.to(row.wait_no),
                    SATISFIED.to(row.satisfied),
                    FAILED.to(row.failed),
                    LOST.to(row.lost),
                    LOST_STATUS.to(row.status),
                    SKIPPED.to(row.skipped),
                ]
            });
        }
    });
}
