//! Low-water marks of lanes: what is [known](known_lanes) of them, and how it is found out.
//!
//! **No entry is missed**, for the same reason as with the other [marks], whose bounds these are: a look sees each
//! entry up to the bound, as grantable or as granted, and none comes back at an old position. What it sees as grantable
//! is behind the common position, or in an excepted lane behind its mark.
//!
//! A look goes through all lanes of an action. It is taken where a claim has read many more pages than it met entries,
//! which tells that there is much to be passed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::marks;
use crate::number::{Lane, Position};
use crate::pg::session;
use crate::pg::statement::Statement;
use crate::store::costly;
use crate::store::known_lanes;

/// The first grantable entry of each lane: jumps from one that has something behind the common position ($2) to the next,
/// then the excepted ones ($3 to $5). $1 action.
static LOOK: Statement<(i32, Position, &[i32], &[Lane], &[Position]), (i32, Lane, Position)> = Statement::new(
    c"WITH RECURSIVE found(priority, lane, position) AS (
        (SELECT r.priority, r.lane, r.position FROM taskq.run r
          WHERE r.action_no = $1 AND r.lane <> 0 AND r.grantable AND r.position >= $2
          ORDER BY r.priority DESC, r.lane, r.position LIMIT 1)
        UNION ALL
        SELECT n.priority, n.lane, n.position FROM found
         CROSS JOIN LATERAL (
               (SELECT r.priority, r.lane, r.position FROM taskq.run r
                 WHERE r.action_no = $1 AND r.lane <> 0 AND r.grantable AND r.priority = found.priority
                   AND r.lane > found.lane AND r.position >= $2
                 ORDER BY r.lane, r.position LIMIT 1)
               UNION ALL
               (SELECT r.priority, r.lane, r.position FROM taskq.run r
                 WHERE r.action_no = $1 AND r.lane <> 0 AND r.grantable AND r.priority < found.priority
                   AND r.position >= $2
                 ORDER BY r.priority DESC, r.lane, r.position LIMIT 1)
               LIMIT 1) AS n)
      SELECT f.priority, f.lane, f.position FROM found AS f
       UNION ALL
      SELECT k.priority, k.lane, r.position
        FROM unnest($3, $4, $5) AS k(priority, lane, start)
       CROSS JOIN LATERAL (SELECT r.position FROM taskq.run r
                            WHERE r.action_no = $1 AND r.priority = k.priority AND r.lane = k.lane AND r.lane <> 0
                              AND r.grantable AND r.position >= k.start
                            ORDER BY r.position LIMIT 1) AS r",
);

/// A claim has read so many pages to choose among entries in lanes of an action, where `few` would have been cheap.
/// If that is worth it, looks where the lanes begin now.
pub(super) fn has_cost(action_no: i32, pages: u64, few: usize) {
    // The statements of a call come after its look, and so see all that was decided by then. What this transaction has
    // taken itself may be undone by a savepoint.
    let bound = marks::decided();
    if bound == Position::BEGINNING
        || costly::good_until(pages, few).is_none()
        || session::has_transaction_id()
    {
        return;
    }
    let known = known_lanes::known(action_no);
    if bound < known.rest {
        return;
    }
    let mut firsts: BTreeMap<(Reverse<i32>, Lane), Position> = BTreeMap::new();
    let (rest, priorities, lanes, starts) = known.columns();
    let looked =
        LOOK.look_each((action_no, rest, priorities, lanes, starts), |(priority, lane, position)| {
            let first = firsts.entry((Reverse(priority), lane)).or_insert(position);
            *first = position.min(*first);
        });
    marks::has_cost(looked.pages);
    known_lanes::remember(action_no, bound, firsts);
}
