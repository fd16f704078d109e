//! How long the values of a task are that stand in one row of what is granted and shown: body, metadata and checkpoint, as text. A result
//! is there only of a task that has ended.
//!
//! **They are measured where a large value comes in.** What is no longer than [`ALONE`] is stored beside whatever there is, so that a
//! call with small values reads nothing more than it did. So the values of a task may be longer than [`MAX_TOGETHER`] by as much as
//! some of these are; what a row has room for is far more than that. So may be those of two reports that come in at the same time.

use crate::error::{Refusal, Result};
use crate::input::MAX_TOGETHER;
use crate::number::TaskNo;
use crate::pg::statement::{Statement, record, sql};
use crate::token::Nonce;

/// The longest value that is not measured together with the others of its task, in bytes.
const ALONE: usize = 64 << 10;

record! {
    /// How many bytes the values of a task have.
    pub(crate) struct Sizes {
        /// The task.
        pub(crate) task_no: TaskNo,
        /// Of the performance that was asked about; [`Nonce::NONE`]: of none.
        pub(crate) nonce: Nonce,
        /// Its body.
        pub(crate) body: i32,
        /// Its metadata.
        pub(crate) metadata: i32,
        /// The checkpoint for its next try.
        pub(crate) checkpoint: i32,
    }
}

macro_rules! sizes {
    ($of:literal) => {
        concat!(
            "SELECT t.task_no, u.nonce, COALESCE(pg_catalog.octet_length(t.body), 0),
                    COALESCE(pg_catalog.octet_length(t.metadata::text), 0),
                    COALESCE((SELECT pg_catalog.octet_length(p.checkpoint::text) FROM taskq.progress p WHERE p.task_no = t.task_no), 0)
               FROM ",
            $of,
            " CROSS JOIN LATERAL (SELECT t.task_no, t.body, t.metadata FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t"
        )
    };
}

static OF: Statement<&[TaskNo], Sizes> = Statement::new(sql!(sizes!(
    "(SELECT n, 0::bigint FROM pg_catalog.unnest($1) AS n) AS u(task_no, nonce)"
)));

/// Of those of the tasks that are in progress with this nonce.
static HELD: Statement<(&[TaskNo], &[Nonce]), Sizes> = Statement::new(sql!(sizes!(
    "unnest($1, $2) AS u(task_no, nonce)
     CROSS JOIN LATERAL (SELECT FROM taskq.run r WHERE r.task_no = u.task_no AND r.nonce = u.nonce OFFSET 0) AS r"
)));

/// Whether a value of so many bytes is to be measured together with the others of its task.
pub(crate) fn are_asked(bytes: usize) -> bool {
    bytes > ALONE
}

/// Of those of the tasks that are in progress with these nonces.
pub(crate) fn held(performances: Vec<(TaskNo, Nonce)>) -> Vec<Sizes> {
    let (task_nos, nonces): (Vec<TaskNo>, Vec<Nonce>) = performances.into_iter().unzip();
    HELD.query((task_nos, nonces))
}

/// `54000`: with the new value of so many bytes, `what`, one of the tasks has more than it may. `others`: what stays of it.
pub(crate) fn check(
    what: &str,
    bytes: usize,
    task_nos: &[TaskNo],
    others: impl Fn(&Sizes) -> i64,
) -> Result<()> {
    if !are_asked(bytes) || task_nos.is_empty() {
        return Ok(());
    }
    let others = OF.query(task_nos).iter().map(others).max().unwrap_or(0);
    match others + bytes as i64 > MAX_TOGETHER as i64 {
        true => Err(Refusal::too_long_together(what, bytes, others, MAX_TOGETHER)),
        false => Ok(()),
    }
}
