//! The table `scheduled`: tasks that nothing blocks but a time: their own, that of a retry or that of their workgroup.

use crate::number::{Position, TaskNo};
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::pg::table::{self, Index, Key, Look, look, table};
use crate::store::freed::Freed;
use crate::store::task;

table!(c"scheduled":
    TASK_NO: TaskNo,
    DUE: Time,
    ACTION_NO: i32,
    TRIES: i32,
    FAILURES: i32,
    DEPENDENCIES: i32,
    POSITION: Position,
    HELD_BACK: bool,
    TIMER: bool;
    c"scheduled_timer_idx" where TIMER NotZero
);

/// By action_no, due, position.
static BY_TIME: Index = Index::new(&TABLE, c"scheduled_due_idx");

/// Of each action, from a time on, the first due time that has passed.
pub(crate) fn first_due(look: &Look, of: impl Iterator<Item = (i32, Time)>, now: Time) -> Vec<Option<Time>> {
    look.scan(&BY_TIME, |rows| {
        of.map(|(action_no, from)| {
            let keys = [Key::eq(1, action_no), Key::at_least(2, from), Key::at_most(2, now)];
            rows.first(&keys, |row| row.get(DUE))
        })
        .collect()
    })
}

/// By due: timers, whatever their action.
static TIMERS: Index = Index::of_mostly_empty(&TABLE, c"scheduled_timer_idx");

/// The first timer from a time on whose time has come.
pub(super) fn first_timer(look: &Look, from: Time, now: Time) -> Option<Time> {
    look.first(&TIMERS, &[Key::at_least(1, from), Key::at_most(1, now)], |row| row.get(DUE))
}

/// A task that is to wait here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Later {
    /// The task, and what it brings along when its time has come.
    pub(crate) freed: Freed,
    /// When its time comes.
    pub(crate) due: Time,
    /// Where it stood, if that counts for the order in which it comes back; else its number, as for a new task.
    pub(crate) position: Position,
}

impl Later {
    /// Because of its own time.
    pub(crate) fn own(freed: Freed, due: Time) -> Self {
        Later { freed, due, position: Position(freed.task_no.0) }
    }
}

/// Has tasks wait here until they are due; returns the action of each, and whether it is a timer. `held_back`: because of their
/// workgroups or closed turnstiles, and not of their own times.
pub(crate) fn insert(tasks: &[Later], held_back: bool) -> Vec<(i32, bool)> {
    look(|look| {
        let kinds: Vec<(i32, bool)> = look.scan(&task::BY_NUMBER, |rows| {
            tasks.iter().map(|task| task::action_no_and_kind(rows, task.freed.task_no)).collect()
        });
        table::insert(&TABLE, |into| {
            for (Later { freed, due, position }, (action_no, timer)) in tasks.iter().zip(&kinds) {
                check_for_interrupts();
                into.row(|| {
                    [
                        TASK_NO.to(freed.task_no),
                        DUE.to(*due),
                        ACTION_NO.to(*action_no),
                        TRIES.to(freed.tries),
                        FAILURES.to(freed.failures),
                        DEPENDENCIES.to(freed.dependencies),
                        POSITION.to(*position),
                        HELD_BACK.to(held_back),
                        TIMER.to(*timer),
                    ]
                });
            }
        });
        kinds
    })
}

/// Those with a later time of their own keep that.
pub(crate) static BRING_FORWARD: Statement<(&[TaskNo], Time), i32> = Statement::new(
    c"UPDATE taskq.scheduled s SET due = GREATEST($2, (SELECT t.not_before FROM taskq.task t
                                                        WHERE t.task_no = s.task_no))
       WHERE s.task_no = ANY ($1)
      RETURNING s.action_no",
);

/// Takes out tasks of these actions that are due and not locked, so many at most, from a time on for each. Walks `scheduled_due_idx`,
/// one range per action, earliest first; those that are due at one time in the order of their positions, however many there are.
pub(crate) static TAKE_DUE: Statement<(&[i32], i32, Time, &[Time]), (Time, Position, bool, Freed)> =
    Statement::new(
        c"DELETE FROM taskq.scheduled d
       WHERE d.ctid = ANY (ARRAY(
               SELECT s.ctid
                 FROM unnest($1, $4) AS a(action_no, start)
                CROSS JOIN LATERAL (
                      SELECT s.ctid FROM taskq.scheduled s
                       WHERE s.action_no = a.action_no AND s.due >= a.start AND s.due <= $3
                       ORDER BY s.due, s.position LIMIT $2
                         FOR UPDATE SKIP LOCKED) AS s
                LIMIT $2))
      RETURNING d.due, d.position, d.timer, d.task_no, d.tries, d.failures, d.dependencies",
    );

/// The same of these, if they are due and no other transaction has them.
pub(crate) static TAKE: Statement<(&[TaskNo], Time), (Time, Position, bool, Freed)> = Statement::new(
    c"DELETE FROM taskq.scheduled d
       WHERE d.ctid = ANY (ARRAY(SELECT s.ctid FROM taskq.scheduled s
                                  WHERE s.task_no = ANY ($1) AND s.due <= $2 FOR UPDATE SKIP LOCKED))
      RETURNING d.due, d.position, d.timer, d.task_no, d.tries, d.failures, d.dependencies",
);

/// Of those that are due and cannot be taken out, another time.
pub(crate) static PUT_OFF: Statement<(&[TaskNo], Time, Time)> = Statement::new(
    c"UPDATE taskq.scheduled d SET due = $3
       WHERE d.ctid = ANY (ARRAY(SELECT s.ctid FROM taskq.scheduled s
                                  WHERE s.task_no = ANY ($1) AND s.due <= $2 FOR UPDATE SKIP LOCKED))",
);

/// Adds to what these tasks have of dependencies, and of such as have aborted; both may be negative.
pub(crate) static RECOUNT: Statement<(&[TaskNo], i32, i32)> = Statement::new(
    c"UPDATE taskq.scheduled s SET dependencies = s.dependencies + $2, failures = s.failures + $3
       WHERE s.task_no = ANY ($1)",
);

/// Removes the rows of these tasks.
pub(crate) static REMOVE: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.scheduled s WHERE s.task_no = ANY ($1)");

/// Timers whose time has come and that are not locked, of whatever action, so many at most.
pub(crate) static TAKE_TIMERS: Statement<(i32, Time), (Time, Position, bool, Freed)> = Statement::new(
    c"DELETE FROM taskq.scheduled d
       WHERE d.ctid = ANY (ARRAY(SELECT s.ctid FROM taskq.scheduled s
                                  WHERE s.timer AND s.due <= $2 ORDER BY s.due LIMIT $1 FOR UPDATE SKIP LOCKED))
      RETURNING d.due, d.position, d.timer, d.task_no, d.tries, d.failures, d.dependencies",
);
