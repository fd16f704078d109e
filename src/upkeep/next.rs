//! When something is due next.

use std::time::Duration;

use crate::clock;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::schedules;
use crate::store::by_time as due_by_time;
use crate::store::low_ends;

/// Leases from $1 to $2: further on there may be many dead entries, of tasks that came back in time. What is before $3 is passed over.
static NEXT_LEASE: Statement<(Time, Time, Time), Time> = Statement::new(
    c"SELECT l.deadline FROM taskq.lease l
       WHERE l.deadline > $1 AND l.deadline >= $3 AND l.deadline <= $2
       ORDER BY l.deadline LIMIT 1",
);

static NEXT_TASK: Statement<(&[i32], Time, &[Time]), Option<Time>> = Statement::new(
    c"SELECT pg_catalog.min(s.due)
        FROM unnest($1, $3) AS a(action_no, start)
       CROSS JOIN LATERAL (SELECT s.due FROM taskq.scheduled s
                            WHERE s.action_no = a.action_no AND s.due > $2 AND s.due >= a.start
                            ORDER BY s.due LIMIT 1) AS s",
);

/// How far ahead a waiter has to know of deadlines: it does not sleep for longer.
const AHEAD: Duration = Duration::from_secs(60);

/// When the next deadline passes after this time, if that is soon, or the next run of a schedule or something else is due that no
/// worker asks for.
pub(crate) fn next_shared(after: Time) -> Option<Time> {
    let now = clock::now();
    let starts = low_ends::starts(&[]);
    let lease = NEXT_LEASE.first((after, now + AHEAD, starts.lease));
    let by_time = due_by_time::next_after(after, &starts.by_time);
    lease.into_iter().chain(schedules::next_after(after)).chain(by_time).min()
}

/// When the next task of these actions is due after this time.
pub(crate) fn next_task(action_nos: &[i32], after: Time) -> Option<Time> {
    let starts = low_ends::starts(action_nos);
    NEXT_TASK.first((action_nos, after, starts.scheduled)).flatten()
}
