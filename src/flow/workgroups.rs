//! Workgroups: rate-limit domains that a worker holds back after a refusal from outside (a 429, say).

use std::collections::{BTreeMap, HashMap};

use pgrx::datum::Interval;
use pgrx::pg_sys::{INT8ARRAYOID, TEXTARRAYOID, TEXTOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID};
use pgrx::prelude::*;

use crate::error::{Refusal, Result, or_throw, required};
use crate::pg::clock::{self, Time};
use crate::pg::statement::{Statement, args};
use crate::spec::{MAX_NAME, check_interval};
use crate::store::aside;
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
/// Tasks set aside because of the workgroup until later than that, locked by number as by everybody who locks several:
/// see `store::order`.
static SET_ASIDE: Statement = Statement::new(
    c"SELECT s.task_no FROM taskq.scheduled s
       WHERE s.task_no = ANY (ARRAY(SELECT t.task_no FROM taskq.task t WHERE t.workgroup = $1))
         AND s.held_back AND s.due > $2
       ORDER BY s.task_no FOR UPDATE",
    &[TEXTOID, TIMESTAMPTZOID],
);
/// Those with a later time of their own keep that.
static BRING_FORWARD: Statement = Statement::new(
    c"UPDATE taskq.scheduled s SET due = GREATEST($2, (SELECT t.not_before FROM taskq.task t
                                                        WHERE t.task_no = s.task_no))
       WHERE s.task_no = ANY ($1)
      RETURNING s.action_no",
    &[INT8ARRAYOID, TIMESTAMPTZOID],
);

/// Actions with entries of the workgroup that are ready.
static READY: Statement = Statement::new(
    c"SELECT DISTINCT r.action_no
        FROM (SELECT t.task_no FROM taskq.task t WHERE t.workgroup = $1 OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT r.action_no FROM taskq.run r
                            WHERE r.task_no = t.task_no AND r.grantable OFFSET 0) AS r",
    &[TEXTOID],
);

/// Holds a workgroup back until a time, which may be earlier than the one before: tasks that were set aside
/// until then are brought forward.
fn set(name: &str, until: Time) {
    let before: Option<Time> = BEFORE.first(args![name], |row| row.need(1));
    SET.execute(args![name, until]);
    if before.is_some_and(|before| before > until) {
        let task_nos: Vec<i64> = SET_ASIDE.query(args![name, until], |row| row.need(1));
        for action_no in BRING_FORWARD.query(args![task_nos, until], |row| row.need(1)) {
            wake::ready(action_no);
        }
        // Claims look again whether it is time.
        aside::release(&[aside::workgroup(name)]);
        // And calls that sleep look at those that no claim has moved.
        READY.query(args![name], |row| row.need::<i32>(1)).into_iter().for_each(wake::ready_for_all);
    }
}

static OF_TASKS: Statement = Statement::new(
    c"SELECT t.task_no, t.workgroup FROM taskq.task t WHERE t.task_no = ANY ($1)",
    &[INT8ARRAYOID],
);
static DELAY_FURTHER: Statement = Statement::new(
    c"INSERT INTO taskq.workgroup AS w (name, not_before) SELECT * FROM unnest($1, $2)
      ON CONFLICT (name) DO UPDATE SET not_before = GREATEST(w.not_before, EXCLUDED.not_before)",
    &[TEXTARRAYOID, TIMESTAMPTZARRAYOID],
);

/// A task that is being returned, its id, and for how long its workgroup is to be held back.
pub(crate) struct Delayed<'a> {
    pub(crate) task_no: i64,
    pub(crate) id: &'a str,
    pub(crate) delay: Interval,
}

/// Holds back the workgroups of tasks that are being returned, at least until the delays are over: of several
/// workers that were refused the one that was told to wait longest decides. The rows are changed in the order
/// of names, so that two calls wait for each other in one direction only.
pub(crate) fn delay_of(delayed: &[Delayed], now: Time) -> Result<()> {
    if delayed.is_empty() {
        return Ok(());
    }
    let task_nos: Vec<i64> = delayed.iter().map(|d| d.task_no).collect();
    let names: HashMap<i64, String> = OF_TASKS
        .query(args![task_nos], |row| Some((row.need::<i64>(1), row.get::<String>(2)?)))
        .into_iter()
        .flatten()
        .collect();
    let mut until: BTreeMap<&str, Time> = BTreeMap::new();
    for task in delayed {
        let Some(name) = names.get(&task.task_no) else {
            return Err(Refusal::argument(
                "argument \"delay_workgroup\" is given for a task without a workgroup",
                &format!("Task \"{}\" has none.", task.id),
                "Insert the task with a workgroup, or leave the argument out.",
            ));
        };
        let time = until.entry(name).or_insert(now);
        *time = now.plus(task.delay).max(*time);
    }
    let (names, times): (Vec<&str>, Vec<Time>) = until.into_iter().unzip();
    DELAY_FURTHER.execute(args![names, times]);
    Ok(())
}
