//! Tasks whose time has come move from `scheduled` to the end of their priority in `run`.

use super::Upkeep;
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::Statement;
use crate::store::ready::{Freed, make_ready};

/// Walks `scheduled_due_idx`, one range per action, earliest first.
static TAKE: Statement<(&[i32], i32, Time, &[Time]), (Time, i64, i32, i32, i32)> = Statement::typed(
    c"DELETE FROM taskq.scheduled d
       WHERE d.ctid = ANY (ARRAY(
               SELECT s.ctid
                 FROM unnest($1, $4) AS a(action_no, start)
                CROSS JOIN LATERAL (
                      SELECT s.ctid FROM taskq.scheduled s
                       WHERE s.action_no = a.action_no AND s.due >= a.start AND s.due <= $3
                       ORDER BY s.due LIMIT $2
                         FOR UPDATE SKIP LOCKED) AS s
                LIMIT $2))
      RETURNING d.due, d.task_no, d.tries, d.failures, d.dependencies",
);

/// Releases up to `bound` tasks of these actions that are due, from a time on for each.
pub(crate) fn release(action_nos: &[i32], starts: Vec<Time>, bound: i32, now: Time) -> Upkeep {
    assign_transaction_id();
    let mut due: Vec<(Time, Freed)> =
        TAKE.map((action_nos, bound, now, starts), |(due, task_no, tries, failures, dependencies)| {
            (due, Freed { task_no, tries, failures, dependencies, not_before: None })
        });
    due.sort_by_key(|(due, freed)| (*due, freed.task_no));
    let freed: Vec<Freed> = due.into_iter().map(|(_, freed)| freed).collect();
    make_ready(&freed);
    Upkeep { changed: !freed.is_empty(), more: freed.len() as i32 >= bound, ..Upkeep::default() }
}
