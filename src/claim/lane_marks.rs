//! Low-water marks of lanes: what is [known](known_lanes) of them, and how it is found out.
//!
//! **No entry is missed**, for the same reason as with the other [marks], whose bounds these are: a look sees each
//! entry up to the bound, as grantable or not, and one that is not comes back at a new position, if at all. What it sees as
//! grantable is not before the common position, or in an excepted lane not before its mark.
//!
//! A look goes through all lanes of an action. It is taken only where a claim has read many more pages than it met entries,
//! which tells that there is much to be passed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::jumps::{ABOVE_ALL, lanes_in_order};
use super::marks;
use crate::memory::cost;
use crate::number::{Lane, Position};
use crate::pg::session;
use crate::pg::statement::{Statement, sql};
use crate::store::known_lanes;

/// The first grantable entry of each lane. $1 to $6 see [`lanes_in_order`].
static FIRST_OF_LANES: Statement<(i32, i64, Position, &[i32], &[Lane], &[Position]), (i32, Lane, Position)> =
    Statement::new(sql!(
        lanes_in_order!(),
        "SELECT l.priority::integer, l.lane, r.position FROM lanes AS l
          CROSS JOIN LATERAL (SELECT r.position FROM taskq.run r
                               WHERE r.action_no = $1 AND r.priority = l.priority AND r.lane = l.lane AND r.lane <> 0
                                 AND r.grantable AND r.position >= l.start
                               ORDER BY r.position LIMIT 1) AS r"
    ));

/// A claim has read so many pages to choose among entries in lanes of an action, where `few` would have been cheap.
/// If that is worth it, looks where the lanes begin now: once the claims have wasted as much as the last look has cost.
pub(super) fn has_cost(action_no: i32, pages: u64, few: usize) {
    // The statements of a call come after its look, and so see all that was decided by then. What this transaction has
    // taken itself may be undone by a savepoint.
    let bound = marks::decided();
    if bound == Position::BEGINNING
        || cost::lasts(pages, few).is_none()
        || session::has_transaction_id()
        || !known_lanes::is_worth_a_look(action_no, pages.saturating_sub(few as u64))
    {
        return;
    }
    let known = known_lanes::known(action_no);
    if bound.next() < known.rest {
        return;
    }
    let mut firsts: BTreeMap<(Reverse<i32>, Lane), Position> = BTreeMap::new();
    let (priorities, lanes, starts) = known.below(ABOVE_ALL);
    let all = (action_no, ABOVE_ALL, known.rest, priorities, lanes, starts);
    let looked = FIRST_OF_LANES.look_each(all, |(priority, lane, position)| {
        let first = firsts.entry((Reverse(priority), lane)).or_insert(position);
        *first = position.min(*first);
    });
    known_lanes::remember(action_no, bound, firsts, looked.pages);
}
