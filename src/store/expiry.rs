//! The table `expiry`: when tasks expire that have not been granted by then, and signals that have not been signalled.
//!
//! A row goes when its task settles, is suspended, starts over or is removed: by the transaction that has the task's live row, if
//! there is one. A grant leaves it, since it must not cost a task anything that has none; upkeep removes it once its time has come.

use std::time::Duration;

use crate::memory::{Belief, Latest, Memory};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Statement, sql};
use crate::pg::table::{self, Index, Key, Look, look, table};
use crate::wake;

table!(c"expiry":
    TASK_NO: TaskNo,
    DUE: Time,
);

/// By due.
static BY_TIME: Index = Index::of_mostly_empty(&TABLE, c"expiry_due_idx");
/// By task_no.
static BY_NUMBER: Index = Index::of_mostly_empty(&TABLE, c"expiry_pkey");

/// Until when nothing has expired, as the latest look of this backend has found.
static CLEAR: Memory<Latest<(), Time>> = Memory::of(Belief::NothingExpired);

/// A claim that follows so soon on a look goes by that.
const LATELY: Duration = Duration::from_millis(20);

/// The first time from a time on that has passed.
///
/// Only a look from the beginning tells that nothing has expired: a task may come whose time had passed by its commit.
pub(super) fn first_due(look: &Look, from: Time, now: Time) -> Option<Time> {
    let first = look.first(&BY_TIME, &[Key::at_least(1, from), Key::at_most(1, now)], |row| row.get(DUE));
    let is_clear = first.is_none() && from == Time::BEGINNING;
    CLEAR.with(|clear| if is_clear { clear.note((), now) } else { clear.clear() });
    first
}

/// Whether tasks may have expired by now, as the latest look of this backend tells. Where none have, a claim asks nothing.
pub(crate) fn may_be_due(now: Time) -> bool {
    CLEAR.with(|clear| clear.get(&()).is_none_or(|until| *until + LATELY < now))
}

/// Whether this task, of which no grant counts, has expired.
pub(crate) fn is_over(task_no: TaskNo, now: Time) -> bool {
    let due = look(|look| look.first(&BY_NUMBER, &[Key::eq(1, task_no)], |row| row.get(DUE)));
    due.is_some_and(|due| due <= now) && RELEASED.query(vec![task_no]).is_empty()
}

/// Tasks are to expire then.
pub(crate) fn insert(tasks: impl Iterator<Item = (TaskNo, Time)>) {
    let mut first = Time::INFINITY;
    table::insert(&TABLE, |into| {
        for (task_no, due) in tasks.filter(|(_, due)| *due != Time::INFINITY) {
            check_for_interrupts();
            into.row(|| [TASK_NO.to(task_no), DUE.to(due)]);
            first = first.min(due);
        }
    });
    wake::timer(first);
}

static REMOVE_EXPIRY: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.expiry e WHERE e.task_no = ANY ($1)");

/// These tasks do not expire any more. The caller has their live rows, where there are any.
pub(crate) fn forget(task_nos: &[TaskNo]) {
    if !task_nos.is_empty() {
        REMOVE_EXPIRY.execute(task_nos);
    }
}

/// Those of the tasks of whose tries since they have last started over one is history. Of a task without a try that counts: a worker
/// has given it back.
pub(crate) static RELEASED: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT u.task_no FROM pg_catalog.unnest($1) AS u(task_no)
       WHERE EXISTS (SELECT FROM taskq.attempt a WHERE a.task_no = u.task_no AND NOT a.past OFFSET 0)",
);

/// Whether the task of a row of `expiry`, named `e`, has been granted, or has ended.
macro_rules! granted {
    () => {
        "(EXISTS (SELECT FROM taskq.run r
                   WHERE r.task_no = e.task_no AND (r.nonce <> 0 OR r.tries > 0) OFFSET 0)
          OR EXISTS (SELECT FROM taskq.scheduled s WHERE s.task_no = e.task_no AND s.tries > 0 OFFSET 0)
          OR EXISTS (SELECT FROM taskq.blocked b WHERE b.task_no = e.task_no AND b.tries > 0 OFFSET 0)
          OR EXISTS (SELECT FROM taskq.parked p WHERE p.task_no = e.task_no AND p.tries > 0 OFFSET 0)
          OR EXISTS (SELECT FROM taskq.attempt a WHERE a.task_no = e.task_no AND NOT a.past OFFSET 0)
          OR EXISTS (SELECT FROM taskq.settled s WHERE s.task_no = e.task_no OFFSET 0))"
    };
}

/// The status with which the task of a row of `expiry`, named `e`, aborts; `t` is the task.
macro_rules! status {
    () => {
        "pg_catalog.format('expired: it was not %s by %s', CASE WHEN t.signal THEN 'signalled' ELSE 'granted' END,
                           pg_catalog.to_char(e.due AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS\"Z\"'))"
    };
}

/// Those of the tasks whose time has come, whether they were granted or not, with their statuses.
pub(crate) static PASSED_OF: Statement<(&[TaskNo], Time), (TaskNo, String)> = Statement::new(sql!(
    "SELECT e.task_no, ",
    status!(),
    " FROM taskq.expiry e
      CROSS JOIN LATERAL (SELECT t.signal FROM taskq.task t WHERE t.task_no = e.task_no OFFSET 0) AS t
      WHERE e.task_no = ANY ($1) AND e.due <= $2"
));

/// Rows whose time has come, so many at most, from a time on: the task, whether it was granted or has ended, whether it shares the
/// end of another one, and the status with which it aborts. Walks `expiry_due_idx`.
pub(crate) static PASSED: Statement<(Time, i32, Time), (TaskNo, bool, String)> = Statement::new(sql!(
    "SELECT e.task_no, ",
    granted!(),
    ", ",
    status!(),
    "
       FROM taskq.expiry e
      CROSS JOIN LATERAL (SELECT t.signal FROM taskq.task t WHERE t.task_no = e.task_no OFFSET 0) AS t
      WHERE e.due >= $3 AND e.due <= $1
      ORDER BY e.due LIMIT $2"
));

/// Of these, which were granted or have ended, those go that no other transaction has locked.
pub(crate) static REMOVE_FREE: Statement<&[TaskNo]> = Statement::new(
    c"DELETE FROM taskq.expiry d
       WHERE d.ctid = ANY (ARRAY(SELECT e.ctid FROM taskq.expiry e
                                  WHERE e.task_no = ANY ($1) FOR UPDATE SKIP LOCKED))",
);
