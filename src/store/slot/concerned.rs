//! Which actions a limit concerns: those that it may hold tasks of.

use super::Limit;
use crate::pg::statement::Statement;
use crate::store::known_lanes;
use crate::wake;

static NUMBERS: Statement<&str, i32> =
    Statement::new(c"SELECT a.action_no FROM taskq.action a WHERE a.name = $1");
/// The actions that have entries in lanes: jumps from one to the next in `run_lane_idx`. Those that are known to have
/// lanes ($1) count without a look: there may be many dead entries.
static LANED: Statement<&[i32], i32> = Statement::new(
    c"WITH RECURSIVE laned(action_no, at) AS (
        SELECT 0, 1
        UNION ALL
        SELECT n.action_no, n.at FROM laned
         CROSS JOIN LATERAL (
               (SELECT r.action_no, laned.at FROM taskq.run r
                 WHERE r.lane <> 0 AND r.action_no > laned.action_no
                   AND r.action_no <= COALESCE($1[laned.at] - 1, 2147483647)
                 ORDER BY r.action_no LIMIT 1)
               UNION ALL
               SELECT $1[laned.at], laned.at + 1 WHERE $1[laned.at] IS NOT NULL
               LIMIT 1) AS n(action_no, at))
      SELECT l.action_no FROM laned AS l WHERE l.action_no > 0",
);

/// Has one waiter woken at commit for each action in which a task may take a slot of the limit.
pub(crate) fn wake(limit: &Limit) {
    concerned(limit).into_iter().for_each(wake::ready);
}

/// The numbers of the actions that a limit may hold tasks of.
pub(crate) fn concerned(limit: &Limit) -> Vec<i32> {
    if limit.action.is_empty() {
        LANED.query(known_lanes::actions())
    } else {
        NUMBERS.query(limit.action.clone())
    }
}
