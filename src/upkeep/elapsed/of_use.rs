//! Whether the end of another action's tries may be of use to a call that is about to sleep.
//!
//! It leaves such tries to others as a rule: what comes of them it could not show to anybody before it ends. But a place of a group
//! becomes free by it, and a task that depends on one whose last try that was, and either may be what the call waits for. Asked
//! before anything is locked: an attempt costs the call a transaction id, with which it sleeps if nothing comes of it.

use crate::flow::actions::try_limits;
use crate::number::TaskNo;
use crate::pg::statement::Statement;

/// How many times each has been tried, whether it has a place of a group that has a limit of its own, and whether other tasks
/// depend on it.
static CONCERNS: Statement<&[TaskNo], (TaskNo, i32, bool, bool)> = Statement::new(
    c"SELECT r.task_no, r.tries,
             r.limited AND EXISTS (SELECT FROM taskq.task_group g
                                    WHERE g.group_id = t.group_id AND g.max_concurrency IS NOT NULL OFFSET 0),
             EXISTS (SELECT FROM taskq.dependency d WHERE d.after_no = r.task_no OFFSET 0)
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT r.task_no, r.tries, r.limited FROM taskq.run r
                            WHERE r.task_no = u.task_no OFFSET 0) AS r
       CROSS JOIN LATERAL (SELECT t.group_id FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t",
);

/// Whether anything may come of the end of these tries for other actions than theirs.
pub(super) fn to_others(task_nos: &[TaskNo]) -> bool {
    let mut awaited = Vec::new();
    for (task_no, tries, has_place, is_awaited) in CONCERNS.query(task_nos) {
        if has_place {
            return true;
        }
        if is_awaited {
            awaited.push((task_no, tries));
        }
    }
    let limits = try_limits(&awaited.iter().map(|(task_no, _)| *task_no).collect::<Vec<_>>());
    awaited.iter().any(|(task_no, tries)| {
        let limit = limits.get(task_no).copied().unwrap_or_default();
        limit.max_timeouts.is_some() || limit.max_tries.is_some_and(|max| *tries >= max)
    })
}
