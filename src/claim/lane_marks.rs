//! Low-water marks of lanes: where claims begin in them.
//!
//! Each lane has what is done and in progress at its low end, as the order of claiming has. So a backend remembers of an
//! action one position before which no lane has anything to be had, and the lanes that are excepted: those in which
//! something has waited for longer, with where that begins. Jumps from lane to lane then look at no rows before that
//! position, and into the excepted lanes from their marks on.
//!
//! **No entry is missed**, for the same reason as with the other [marks](super::marks), whose bounds these are: a look sees
//! each entry up to the bound, as grantable or as granted, and none comes back at an old position. What it sees as grantable is
//! behind the common position, or in an excepted lane behind its mark.
//!
//! A look goes through all lanes of an action. It is taken where a claim has read many more pages than it met entries,
//! which tells that there is much to be passed.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use pgrx::pg_sys::{INT4ARRAYOID, INT4OID, INT8ARRAYOID, INT8OID};

use super::marks;
use crate::pg::session;
use crate::pg::statement::{Arg, Statement, args};
use crate::store::costly;

/// Of how many actions something is remembered, and how many lanes of one may be excepted.
const MOST_ACTIONS: usize = 256;
const MOST_LANES: usize = 1_024;

/// What is known of the lanes of an action.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Before this position no lane has anything, but for those that are excepted.
    pub(super) rest: i64,
    /// The excepted lanes, in the order of priorities and lanes.
    priorities: Vec<i32>,
    lanes: Vec<i64>,
    /// Where they begin.
    starts: Vec<i64>,
}

thread_local! {
    static KNOWN: RefCell<HashMap<i32, Known>> = RefCell::default();
}

/// What is known of the lanes of an action.
pub(super) fn known(action_no: i32) -> Known {
    KNOWN.with_borrow(|known| known.get(&action_no).cloned().unwrap_or_default())
}

/// Of actions of which something is known, the common positions, in columns.
pub(crate) fn rests() -> (Vec<i32>, Vec<i64>) {
    KNOWN.with_borrow(|known| known.iter().map(|(action_no, known)| (*action_no, known.rest)).unzip())
}

/// Whether any lane of the action is excepted.
pub(crate) fn has_excepted(action_no: i32) -> bool {
    KNOWN.with_borrow(|known| known.get(&action_no).is_some_and(|known| !known.lanes.is_empty()))
}

/// Positions are not what they were.
pub(super) fn forget() {
    KNOWN.with_borrow_mut(HashMap::clear);
}

/// The first grantable entry of each lane: jumps from one that has something behind the common position ($2) to the next,
/// then the excepted ones ($3 to $5). $1 action.
static LOOK: Statement = Statement::new(
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
    &[INT4OID, INT8OID, INT4ARRAYOID, INT8ARRAYOID, INT8ARRAYOID],
);

/// A claim has read so many pages to choose among entries in lanes of an action, where `few` would have been cheap. If that
/// is worth it, looks where the lanes begin now.
pub(super) fn has_cost(action_no: i32, pages: u64, few: usize) {
    // The statements of a call come after its look, and so see all that was decided by then. What this transaction has
    // taken itself may be undone by a savepoint.
    let bound = marks::decided();
    if bound == 0 || costly::good_until(pages, few).is_none() || session::has_transaction_id() {
        return;
    }
    let known = known(action_no);
    if bound < known.rest {
        return;
    }
    let mut firsts: BTreeMap<(Reverse<i32>, i64), i64> = BTreeMap::new();
    let (_, looked) = LOOK.look(&[args![action_no], &known.args()[..]].concat(), |row| {
        let position: i64 = row.need(3);
        let first = firsts.entry((Reverse(row.need(1)), row.need(2))).or_insert(position);
        *first = position.min(*first);
    });
    marks::has_cost(looked.pages);
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= MOST_ACTIONS {
            known.clear();
        }
        known.insert(action_no, Known::up_to(bound, firsts));
    });
}

impl Known {
    /// The common position, and for `unnest(…) AS k(priority, lane, start)`.
    pub(super) fn args(&self) -> [Arg; 4] {
        [
            Arg::new(self.rest),
            Arg::new(self.priorities.as_slice()),
            Arg::new(self.lanes.as_slice()),
            Arg::new(self.starts.as_slice()),
        ]
    }

    /// The excepted lanes of a priority from one to another, and where they begin.
    pub(super) fn excepted(&self, priority: i32, from: i64, to: i64) -> (Vec<i64>, Vec<i64>) {
        let all = self.priorities.iter().zip(self.lanes.iter().zip(&self.starts));
        all.filter(|(of, (lane, _))| **of == priority && (from..=to).contains(*lane))
            .map(|(_, (lane, start))| (*lane, *start))
            .unzip()
    }

    /// What is known once everything up to a bound is decided, and these are the first entries of the lanes.
    fn up_to(bound: i64, firsts: BTreeMap<(Reverse<i32>, i64), i64>) -> Self {
        let mut rest = bound + 1;
        // What excepts a lane asks for those before it, by its number less one.
        if let Some(first) =
            firsts.iter().filter(|((_, lane), _)| *lane == i64::MIN).map(|(_, first)| *first).min()
        {
            rest = rest.min(first);
        }
        let mut waiting: Vec<i64> = firsts.values().copied().filter(|first| *first < rest).collect();
        if waiting.len() > MOST_LANES {
            // The oldest are excepted. What is common ends where the first of the others begins.
            waiting.sort_unstable();
            rest = waiting[MOST_LANES];
        }
        let mut known = Known { rest, ..Known::default() };
        for ((priority, lane), first) in firsts.into_iter().filter(|(_, first)| *first < rest) {
            known.priorities.push(priority.0);
            known.lanes.push(lane);
            known.starts.push(first);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_waited_for_longer_is_excepted() {
        let firsts = [((0, 7), 90), ((0, -7), 20), ((5, 3), 101), ((9, 3), 100)];
        let firsts = firsts.into_iter().map(|((priority, lane), first)| ((Reverse(priority), lane), first));
        let known = Known::up_to(100, firsts.collect());
        assert_eq!(known.rest, 101);
        assert_eq!(known.priorities, [9, 0, 0], "in the order of the index");
        assert_eq!(known.excepted(0, i64::MIN, i64::MAX), (vec![-7, 7], vec![20, 90]));
        assert_eq!(known.excepted(0, -6, 7), (vec![7], vec![90]));
        assert_eq!(known.excepted(9, i64::MIN, 3), (vec![3], vec![100]));
        assert_eq!(
            known.excepted(5, i64::MIN, i64::MAX),
            (vec![], vec![]),
            "it is behind the common position"
        );
    }

    #[test]
    fn of_very_many_lanes_none_is_forgotten() {
        let all: i64 = MOST_LANES as i64 + 10;
        let known = Known::up_to(10_000, (0..all).map(|lane| ((Reverse(0), lane), 5_000 - lane)).collect());
        assert_eq!(known.lanes.len(), MOST_LANES);
        for lane in 0..all {
            let first = 5_000 - lane;
            let excepted = known.excepted(0, lane, lane) == (vec![lane], vec![first]);
            assert!(excepted || first >= known.rest, "lane {lane}");
        }
    }
}
