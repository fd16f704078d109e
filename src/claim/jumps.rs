//! From lane to lane, in the order of `run_lane_idx`: the higher priority first, and each priority's lanes in their order.
//!
//! PostgreSQL cannot go from one lane of an index to the next, so each step is a search of its own. What is
//! [known](crate::store::known_lanes) makes stations of the excepted lanes: the steps between two of them pass what is
//! before the common position by its place in the index alone, and never walk through an excepted lane, in which a
//! backlog of any length waits before that position.

/// Every priority is below this.
pub(super) const ABOVE_ALL: i64 = i32::MAX as i64 + 1;

/// `lanes(priority, lane, start)`: each lane that may have something to be had, with the position to look from. A row that
/// is no lane comes first; its start is NULL. Whether an excepted lane still has anything is not asked.
///
/// $1 action, $2 the priority below which to begin, $3 the common position, $4 to $6 the excepted lanes below that
/// priority: priorities, lanes and starts.
macro_rules! lanes_in_order {
    () => {
        "WITH RECURSIVE lanes(priority, lane, start, at) AS (
        SELECT $2, 9223372036854775807, NULL::bigint, 1
        UNION ALL
        SELECT n.priority, n.lane, n.start, n.at FROM lanes AS l
         CROSS JOIN LATERAL (
               (SELECT r.priority::bigint, r.lane, $3, l.at FROM taskq.run r
                 WHERE r.action_no = $1 AND r.lane <> 0 AND r.grantable AND r.position >= $3
                   AND r.priority = l.priority AND r.lane > l.lane
                   AND r.lane <= CASE WHEN $4[l.at] = l.priority THEN $5[l.at] - 1 ELSE 9223372036854775807 END
                 ORDER BY r.lane, r.position LIMIT 1)
               UNION ALL
               (SELECT r.priority::bigint, r.lane, $3, l.at FROM taskq.run r
                 WHERE r.action_no = $1 AND r.lane <> 0 AND r.grantable AND r.position >= $3
                   AND r.priority < l.priority AND r.priority > COALESCE($4[l.at], -2147483649)
                 ORDER BY r.priority DESC, r.lane, r.position LIMIT 1)
               UNION ALL
               (SELECT r.priority::bigint, r.lane, $3, l.at FROM taskq.run r
                 WHERE $4[l.at] < l.priority
                   AND r.action_no = $1 AND r.lane <> 0 AND r.grantable AND r.position >= $3
                   AND r.priority = $4[l.at] AND r.lane < $5[l.at]
                 ORDER BY r.lane, r.position LIMIT 1)
               UNION ALL
               SELECT $4[l.at]::bigint, $5[l.at], $6[l.at], l.at + 1 WHERE $5[l.at] IS NOT NULL
               LIMIT 1) AS n(priority, lane, start, at))"
    };
}
pub(super) use lanes_in_order;
