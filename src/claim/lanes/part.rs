//! The part of one number of an action in its lanes: which of its priorities have something to give, and what it has cost
//! to find that out.

use std::cell::Cell;

use crate::claim::candidate::Source;
use crate::claim::jumps::lanes_in_order;
use crate::claim::lane_marks;
use crate::number::{Lane, Position};
use crate::pg::statement::{Looked, Statement, sql};
use crate::store::known_lanes::{self, Known};

/// The highest priority that has an entry in a lane that is not full, or without a lane. $1 to $6 see
/// [`lanes_in_order`], $7 lanes that are full, $8 whether lane 0 counts.
static TOP: Statement<(i32, i64, Position, &[i32], &[Lane], &[Position], &[Lane], bool), Option<i32>> =
    Statement::new(sql!(
        lanes_in_order!(),
        "SELECT GREATEST(
             (SELECT l.priority FROM lanes AS l
               WHERE l.lane <> ALL ($7)
                 AND EXISTS (SELECT FROM taskq.run r
                              WHERE r.action_no = $1 AND r.priority = l.priority AND r.lane = l.lane
                                AND r.lane <> 0 AND r.grantable AND r.position >= l.start OFFSET 0)
               LIMIT 1),
             (SELECT r.priority FROM taskq.run r
               WHERE $8 AND r.action_no = $1 AND r.lane = 0 AND r.grantable AND r.priority < $2
               ORDER BY r.priority DESC, r.position LIMIT 1))::integer"
    ));

/// The entries of one number of an action, what is known of their lanes, and what looking for them has cost.
pub(super) struct Part<'a> {
    /// The action under this number, with its full lanes.
    pub(super) source: &'a Source<'a>,
    /// From which positions on the lanes are looked into, as this backend remembers.
    pub(super) known: Known,
    /// What the looks have cost so far.
    pub(super) cost: Cost,
}

impl<'a> Part<'a> {
    /// The part of a number, with what this backend knows of its lanes; nothing has been looked at.
    pub(super) fn new(source: &'a Source<'a>) -> Self {
        Part { source, known: known_lanes::known(source.action.action_no), cost: Cost::default() }
    }

    /// The highest priority below `below` that has something to give. `lane_zero`: also what is in no lane.
    pub(super) fn top(&self, below: i64, lane_zero: bool) -> Option<i32> {
        let full = self.source.full_lanes();
        let (priority, looked) = top(self.source.action.action_no, &self.known, full, below, lane_zero);
        self.cost.add(&looked);
        priority
    }

    /// Tells [`lane_marks`] what the looks have cost, which may look anew for where the lanes begin.
    pub(super) fn tell_cost(&self) {
        self.cost.tell(self.source.action.action_no, self.source.full.len());
    }
}

/// The highest priority below another one that has an entry in a lane that is not full, or (`lane_zero`) in none.
pub(super) fn top(
    action_no: i32,
    known: &Known,
    full: Vec<Lane>,
    below: i64,
    lane_zero: bool,
) -> (Option<i32>, Looked) {
    let (priorities, lanes, starts) = known.below(below);
    let (rows, looked) = TOP.look((action_no, below, known.rest, priorities, lanes, starts, full, lane_zero));
    (rows.into_iter().next().flatten(), looked)
}

/// What it has cost to find some entries.
#[derive(Default)]
pub(super) struct Cost {
    pages: Cell<u64>,
    /// How many entries the looks have come upon.
    pub(super) met: Cell<usize>,
}

impl Cost {
    /// Adds the pages that a look has read.
    pub(super) fn add(&self, looked: &Looked) {
        self.pages.set(self.pages.get() + looked.pages);
    }

    /// So many pages are cheap: some thirty for an entry, with its lane, its task and its group, and half of that for a lane that is
    /// jumped over.
    fn tell(&self, action_no: i32, jumped_over: usize) {
        lane_marks::has_cost(action_no, self.pages.get(), 32 * self.met.get() + 16 * jumped_over);
    }
}

/// What stands for "all of them" in a LIMIT.
pub(super) const ALL: i32 = i32::MAX / 4;

/// A number for a LIMIT; what is too large for one becomes [`ALL`].
pub(super) fn as_limit(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(ALL).min(ALL)
}
