//! What starts over with others.

use std::collections::HashSet;

use super::{Again, SETTLED, hold};
use crate::error::{Refusal, Result};
use crate::insert::lock_for_change;
use crate::locks;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::settle::fold;
use crate::store::numbers;

/// What aborted because a dependency was lost.
static LOSERS: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT s.task_no FROM taskq.settled s WHERE s.task_no = ANY ($1) AND s.code = 'a' AND s.cause IN ('d', 'k')",
);

/// The tasks, and all downstream of them that aborted because a dependency was lost.
static LOSERS_DOWNSTREAM: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"WITH RECURSIVE reached AS (
        SELECT u.task_no FROM pg_catalog.unnest($1) AS u(task_no)
         UNION
        SELECT d.run_no
          FROM reached AS r
         CROSS JOIN LATERAL (SELECT d.run_no FROM taskq.dependency d WHERE d.after_no = r.task_no OFFSET 0) AS d
         CROSS JOIN LATERAL (SELECT FROM taskq.settled s
                              WHERE s.task_no = d.run_no AND s.code = 'a' AND s.cause IN ('d', 'k') OFFSET 0) AS s)
      SELECT r.task_no FROM reached AS r",
);

/// The tasks, and all that is built on them.
static DOWNSTREAM: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"WITH RECURSIVE reached AS (
        SELECT u.task_no FROM pg_catalog.unnest($1) AS u(task_no)
         UNION
        SELECT d.run_no
          FROM reached AS r
         CROSS JOIN LATERAL (SELECT d.run_no FROM taskq.dependency d
                              WHERE d.after_no = r.task_no AND NOT d.suspending AND d.state = 'w' OFFSET 0) AS d)
      SELECT r.task_no FROM reached AS r",
);

static IN_PROGRESS: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT r.task_no
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT r.task_no FROM taskq.run r
                            WHERE r.task_no = u.task_no AND r.nonce <> 0 OFFSET 0) AS r
       ORDER BY r.task_no LIMIT 1",
);

/// What waits for these tasks, or has. $2: without what a suspension has added.
static DEPENDENTS: Statement<(&[TaskNo], bool), TaskNo> = Statement::new(
    c"SELECT DISTINCT d.run_no FROM taskq.dependency d
       WHERE d.after_no = ANY ($1) AND d.state = 'w' AND NOT (d.suspending AND $2)",
);

/// The tasks, and all that starts over with them: in one round what is seen, since a chain has as many levels as tasks, and in
/// others what has changed while the round before waited.
///
/// On the way, live dependents are locked and what was left for their counters is counted: one of them may end by that, and belongs to
/// those that start over then. From here on none of them is granted or ends. Those that are further away wait for others in between.
pub(super) fn with_downstream(asked: &[TaskNo], again: Again, now: Time) -> Result<HashSet<TaskNo>> {
    let retry = again.is_retry();
    let (seen, which) = if retry { (&LOSERS_DOWNSTREAM, &LOSERS) } else { (&DOWNSTREAM, &SETTLED) };
    let mut all: HashSet<TaskNo> = asked.iter().copied().collect();
    loop {
        check_for_interrupts();
        let mut reached: Vec<TaskNo> = seen.query(asked);
        reached.retain(|task_no| !all.contains(task_no));
        // Before the call waits for another transaction.
        if let Some(task_no) = IN_PROGRESS.first(reached.as_slice()).filter(|_| !retry) {
            return Err(in_progress(task_no));
        }
        let found = hold(which, &reached);
        all.extend(&found);
        let mut dependents = DEPENDENTS.query((all.iter().copied().collect::<Vec<_>>(), !retry));
        dependents.retain(|run| !all.contains(run));
        let mut counted = false;
        if !dependents.is_empty() {
            let rows = lock_for_change(&dependents);
            if let Some(row) = rows.values().find(|row| !retry && row.in_progress()) {
                return Err(in_progress(row.task_no));
            }
            counted = fold::of(&dependents, now);
        }
        if found.is_empty() && !counted {
            return Ok(all);
        }
    }
}

fn in_progress(task_no: TaskNo) -> Refusal {
    let ids = numbers::ids(&[task_no]);
    locks::held(
        ids.get(&task_no).map_or("", String::as_str),
        "depends on a task that is to start over",
        "Wait until it is returned, or cancel it first; rerun_tasks with downstream => false leaves dependents as they are.",
    )
}
