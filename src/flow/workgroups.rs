//! Workgroups: rate-limit domains that a worker holds back after a refusal from outside (a 429, say).

use pgrx::datum::Interval;
use pgrx::pg_sys::{TEXTOID, TIMESTAMPTZOID};
use pgrx::prelude::*;

use crate::error::{Refusal, Result, or_throw, required};
use crate::pg::clock::{self, Time};
use crate::pg::statement::{Statement, args};
use crate::spec::{MAX_NAME, check_interval};
use crate::wake;

/// `taskq.delay_workgroup(workgroup, delay) -> timestamptz`
#[pg_extern(sql = "")]
fn taskq_delay_workgroup(
    workgroup: Option<&str>,
    delay: Option<Interval>,
) -> Option<pgrx::datum::TimestampWithTimeZone> {
    or_throw((|| {
        let name = required("workgroup", workgroup)?;
        let delay = required("delay", delay)?;
        check_interval("delay", Some(delay))?;
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Refusal::out_of_range(
                "workgroup",
                &format!("{} bytes long", name.len()),
                "Give a name of 1 to 1,000 bytes.",
            ));
        }
        let until = clock::now().plus(delay);
        set(name, until);
        Ok(pgrx::datum::TimestampWithTimeZone::try_from(until.0).ok())
    })())
}

static SET: Statement = Statement::new(
    c"INSERT INTO taskq.workgroup AS w (name, not_before) VALUES ($1, $2)
      ON CONFLICT (name) DO UPDATE SET not_before = EXCLUDED.not_before",
    &[TEXTOID, TIMESTAMPTZOID],
);
static BEFORE: Statement =
    Statement::new(c"SELECT w.not_before FROM taskq.workgroup w WHERE w.name = $1 FOR UPDATE", &[TEXTOID]);
/// Tasks set aside because of the workgroup; those with a later time of their own keep that.
static BRING_FORWARD: Statement = Statement::new(
    c"UPDATE taskq.scheduled s SET due = GREATEST($2, (SELECT t.not_before FROM taskq.task t
                                                        WHERE t.task_no = s.task_no))
       WHERE s.task_no IN (SELECT t.task_no FROM taskq.task t WHERE t.workgroup = $1)
         AND s.held_back AND s.due > $2
      RETURNING s.action_no",
    &[TEXTOID, TIMESTAMPTZOID],
);

/// Holds a workgroup back until a time, which may be earlier than the one before: tasks that were set aside
/// until then are brought forward.
fn set(name: &str, until: Time) {
    let before: Option<Time> = BEFORE.first(args![name], |row| row.need(1));
    SET.execute(args![name, until]);
    if before.is_some_and(|before| before > until) {
        for action_no in BRING_FORWARD.query(args![name, until], |row| row.need(1)) {
            wake::ready(action_no);
        }
    }
}

static OF_TASK: Statement =
    Statement::new(c"SELECT t.workgroup FROM taskq.task t WHERE t.task_no = $1", &[pg_sys::INT8OID]);
static DELAY_FURTHER: Statement = Statement::new(
    c"INSERT INTO taskq.workgroup AS w (name, not_before) VALUES ($1, $2)
      ON CONFLICT (name) DO UPDATE SET not_before = GREATEST(w.not_before, EXCLUDED.not_before)",
    &[TEXTOID, TIMESTAMPTZOID],
);

/// Holds back the workgroup of a task that is being returned, at least until the delay is over: of several
/// workers that were refused the one that was told to wait longest decides.
pub(crate) fn delay_of(task_no: i64, id: &str, delay: Interval, now: Time) -> Result<()> {
    let Some(name) = OF_TASK.first(args![task_no], |row| row.get::<String>(1)).flatten() else {
        return Err(Refusal::out_of_range(
            "delay_workgroup",
            &format!("given for task \"{id}\", which has no workgroup"),
            "Insert the task with a workgroup, or leave the argument out.",
        ));
    };
    DELAY_FURTHER.execute(args![name, now.plus(delay)]);
    Ok(())
}
