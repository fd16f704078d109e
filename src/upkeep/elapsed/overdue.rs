//! Tries that are overdue: reading their rows of `run`, and locking those that no other transaction has locked.

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, sql};
use crate::store::live_row::{InRun, in_run};
use crate::token::Nonce;

/// Whether the performance of a row of `run`, named `r`, is held, and its deadline has passed.
macro_rules! overdue {
    ($now:literal) => {
        concat!("NOT r.grantable AND r.aside IS NULL AND r.deadline <= ", $now)
    };
}

/// Those that hold no merge key, read or locked. What a holder's end needs besides is for [`holders`](super::holders).
macro_rules! overdue_tries {
    ($end:literal) => {
        Statement::new(sql!(
            "SELECT ",
            in_run!(),
            " FROM taskq.run r
               WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND NOT r.keyed AND ",
            overdue!("$3"),
            $end
        ))
    };
}

/// Locks the rows of overdue tries against any change. What others have locked is skipped.
pub(super) static LOCK_OVERDUE: Statement<(&[TaskNo], &[Nonce], Time), InRun> =
    overdue_tries!(" FOR UPDATE SKIP LOCKED");

/// Reads the rows of overdue tries, whether others have locked them or not.
pub(super) static READ_OVERDUE: Statement<(&[TaskNo], &[Nonce], Time), InRun> = overdue_tries!("");

/// Locks the rows of overdue tries that another one follows: a transaction that adds dependents is not in the
/// way. What others have locked otherwise is skipped.
pub(super) static LOCK_OVERDUE_STAYING: Statement<(&[TaskNo], &[Nonce], Time), InRun> =
    overdue_tries!(" FOR NO KEY UPDATE SKIP LOCKED");

/// Those of the tasks whose tries are overdue and hold a merge key. Locks nothing.
pub(super) static OVERDUE_WITH_KEYS: Statement<(&[TaskNo], &[Nonce], Time), TaskNo> = Statement::new(sql!(
    "SELECT r.task_no FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND r.keyed AND ",
    overdue!("$3")
));

/// Locks the rows of overdue tries that hold a merge key, against any change. What others have locked is
/// skipped.
pub(super) static LOCK_OVERDUE_HOLDERS: Statement<(&[TaskNo], Time), InRun> = Statement::new(sql!(
    "SELECT ",
    in_run!(),
    " FROM taskq.run r WHERE r.task_no = ANY ($1) AND r.keyed AND ",
    overdue!("$2"),
    " FOR UPDATE SKIP LOCKED"
));
