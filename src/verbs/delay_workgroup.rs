//! `delay_workgroup`: a workgroup is held back for a while.

use pgrx::datum::Interval;
use pgrx::prelude::*;

use crate::clock;
use crate::error::{or_throw, required};
use crate::input::{check_interval, check_name};
use crate::locks::turnstile;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::store::{aside, ready_now, reason, scheduled, workgroup};
use crate::wake;

/// `taskq.delay_workgroup(workgroup, delay) -> timestamptz`
#[pg_extern(sql = "")]
fn taskq_delay_workgroup(
    workgroup: Option<&str>,
    delay: Option<Interval>,
) -> Option<pgrx::datum::TimestampWithTimeZone> {
    or_throw((|| {
        let name = check_name("workgroup", workgroup)?;
        let delay = required("delay", delay)?;
        check_interval("delay", Some(delay))?;
        let until = clock::now().plus(delay);
        set(name, until);
        Ok(pgrx::datum::TimestampWithTimeZone::try_from(until.0).ok())
    })())
}

static BEFORE: Statement<&str, Time> =
    Statement::new(c"SELECT w.not_before FROM taskq.workgroup w WHERE w.name = $1 AND NOT w.returned");
/// Tasks held back because of the workgroup until later than that, also by the claims that were waited for: this statement sees
/// what they have done. Locked by number, as by other calls that wait for several: see `locks::order`.
static SCHEDULED: Statement<(&str, Time), TaskNo> = Statement::new(
    c"SELECT s.task_no FROM taskq.scheduled s
       WHERE s.task_no = ANY (ARRAY(SELECT t.task_no FROM taskq.task t WHERE t.workgroup = $1))
         AND s.held_back AND s.due > $2
       ORDER BY s.task_no FOR UPDATE",
);

/// Holds a workgroup back until a time, which may be earlier than the one before: tasks that were held
/// back until then are brought forward.
fn set(name: &str, until: Time) {
    let is_new = workgroup::ADD.execute((name, until)) > 0;
    // As the transaction that had the row before has left it: it is locked, and these statements are new ones. What returns leave later
    // comes after this call.
    let before = if is_new { None } else { BEFORE.first(name) };
    let forward =
        before.into_iter().chain(workgroup::REMOVE_RETURNED.query(name)).any(|before| before > until);
    if forward {
        turnstile::close(turnstile::Reason::Workgroup(name));
    }
    workgroup::SET.execute((name, until));
    if forward {
        let task_nos: Vec<TaskNo> = SCHEDULED.query((name, until));
        for action_no in scheduled::BRING_FORWARD.query((task_nos, until)) {
            wake::ready(action_no);
        }
        // Claims look again whether it is time.
        aside::release(&[reason::workgroup(name)]);
        // And calls that sleep look at those that no claim has moved.
        ready_now::wake_all_of_workgroup(name);
    }
}
