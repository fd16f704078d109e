//! What a call leaves to those that go on sleeping: entries that are ready, and what is due next.

use super::marks;
use crate::flow::actions::Action;
use crate::number::Position;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::store::low_ends::{self, Starts};
use crate::wake;

/// Actions with grantable tasks in no lane, if asked for; then what a waiting call has to look after in time that would not
/// look before without being woken: actions with scheduled tasks, and 0 for deadlines, schedules and
/// what else is due by time.
#[rustfmt::skip]
type Asked = (&'static [i32], bool, Time, &'static [i32], &'static [i32], &'static [i32], &'static [Position], &'static [Time],
    Time, &'static [Time]);

static LEFT_BEHIND: Statement<Asked, i32> =
    Statement::new(
        c"SELECT a.action_no
        FROM unnest($4, $5, $6, $7) AS a(action_no, highest, lowest, start)
       CROSS JOIN LATERAL (SELECT FROM taskq.run r WHERE r.action_no = a.action_no AND r.lane = 0
                              AND r.grantable
                              AND r.priority <= a.highest AND r.priority >= a.lowest AND r.position >= a.start
                            ORDER BY r.priority DESC, r.position LIMIT 1) AS r
       WHERE $2
       UNION ALL
      SELECT a.action_no
        FROM unnest($1, $8) AS a(action_no, start)
       CROSS JOIN LATERAL (SELECT FROM taskq.scheduled s
                            WHERE s.action_no = a.action_no AND s.due >= a.start AND s.due < $3
                            ORDER BY s.due LIMIT 1) AS s
       WHERE $3 IS NOT NULL
       UNION ALL
      (SELECT 0 FROM taskq.lease l WHERE l.deadline >= $9 AND l.deadline < $3 ORDER BY l.deadline LIMIT 1)
       UNION ALL
      (SELECT 0 FROM taskq.schedule s WHERE s.next_at < $3 ORDER BY s.next_at LIMIT 1)
       UNION ALL
      (SELECT 0 FROM taskq.expiry e WHERE e.due >= ($10)[1] AND e.due < $3 ORDER BY e.due LIMIT 1)
       UNION ALL
      (SELECT 0 FROM taskq.blocked b
        WHERE b.since IS NOT NULL AND b.until >= ($10)[2] AND b.until < $3 ORDER BY b.until LIMIT 1)
       UNION ALL
      (SELECT 0 FROM taskq.scheduled s WHERE s.timer AND s.due >= ($10)[3] AND s.due < $3 ORDER BY s.due LIMIT 1)",
    );

/// What a call for these actions leaves to calls that go on sleeping: the actions that have something `ready`, or
/// something that is due within the longest sleep of a call (`later`, with the time it is now); 0 stands for what is due in
/// any action. What is `ready` is as the latest look has seen it: the commit of what has come since has
/// woken a waiting call.
pub(crate) fn left_behind(action_nos: &[i32], ready: bool, later: Option<Time>) -> Vec<i32> {
    if action_nos.is_empty() && later.is_none() {
        return Vec::new();
    }
    let horizon = later.map(|now| now + wake::longest_sleep());
    let ranges = marks::ranges_of_look(action_nos);
    let (of, highest, lowest, from) = ranges.columns();
    let starts = match later {
        Some(_) => low_ends::starts(action_nos),
        None => Starts::beginning(action_nos.len()),
    };
    let Starts { scheduled: due, lease, by_time, .. } = starts;
    let by_time = by_time.as_slice();
    LEFT_BEHIND.query((action_nos, ready, horizon, of, highest, lowest, from, due, lease, by_time))
}

/// Notes whether a look that has found nothing leaves out tasks that are ready to a snapshot: others hold
/// them. (What limits or lanes keep back is noted where they are asked.)
pub(crate) fn note_passed_over(actions: &[Action]) {
    let free = actions.iter().filter(|a| !a.paused && !a.is_chosen_from()).map(|a| a.action_no);
    if !left_behind(&free.collect::<Vec<_>>(), true, None).is_empty() {
        wake::passed_over();
    }
}
