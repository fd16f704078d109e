//! Lanes: the entries of groups whose turn or whose limit has to be looked at before one of them is taken.
//!
//! An entry of a group is in the lane of that group (`run.lane`) if its action is fair or has a limit per group, or if
//! the group has a limit of its own; all others are in lane 0. Each lane is a range of `run_lane_idx`. **A lane that is
//! full costs nothing but a jump over it**, however many entries wait in it; and full lanes are no more than there are
//! performances in progress.
//!
//! Nothing here locks. What is found is a candidate, to be claimed by number, which passes over what has changed.

mod level;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;

use super::candidates::{Candidate, Source};
use super::gates::Met;
use super::jumps::{ABOVE_ALL, lanes_in_order};
use super::lane_marks;
use super::turns;
use crate::flow::actions::Action;
use crate::number::{Lane, Position, TaskNo};
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::{Looked, Statement, sql};
use crate::store::known_lanes::{self, Known};
use crate::store::run::changes;
use crate::store::slot::full_lanes;
use crate::wake;
use level::Level;

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

/// The next candidates of an action that has lanes: `wanted` of them, if there are so many that are not in `passed`.
/// Higher priorities first; within one of them in the order of positions or, if the action is fair, by turns.
///
/// `numbers` are those that stand for its name: a group has the same lane under each of them, and one turn.
pub(super) fn next(
    numbers: &[&Source],
    wanted: usize,
    passed: &HashMap<TaskNo, Lane>,
    lane_zero: bool,
) -> Vec<Candidate> {
    let mut found = Vec::new();
    let Some(first) = numbers.first() else { return found };
    let mut turn = turns::current(first.turns);
    let mut below = ABOVE_ALL;
    let parts: Vec<Part> = numbers.iter().map(|source| Part::new(source)).collect();
    while found.len() < wanted {
        let tops: Vec<Option<i32>> = parts.iter().map(|part| part.top(below, lane_zero)).collect();
        let Some(priority) = tops.iter().copied().flatten().max() else { break };
        let parts: Vec<&Part> =
            parts.iter().zip(tops).filter(|(_, top)| *top == Some(priority)).map(|(part, _)| part).collect();
        let level = Level { parts: &parts, priority, wanted: wanted - found.len(), passed, lane_zero };
        if first.action.gives_lanes() {
            found.extend(level.by_turns(&mut turn));
        } else {
            found.extend(level.by_position());
        }
        below = i64::from(priority);
    }
    parts.iter().for_each(Part::tell_cost);
    found
}

/// The entries of one number of an action, what is known of their lanes, and what looking for them has cost.
struct Part<'a> {
    source: &'a Source<'a>,
    known: Known,
    cost: Cost,
}

impl<'a> Part<'a> {
    fn new(source: &'a Source<'a>) -> Self {
        Part { source, known: known_lanes::known(source.action.action_no), cost: Cost::default() }
    }

    fn top(&self, below: i64, lane_zero: bool) -> Option<i32> {
        let full = self.source.full_lanes();
        let (priority, looked) = top(self.source.action.action_no, &self.known, full, below, lane_zero);
        self.cost.add(&looked);
        priority
    }

    fn tell_cost(&self) {
        self.cost.tell(self.source.action.action_no, self.source.full.len());
    }
}

/// The highest priority below another one that has an entry in a lane that is not full.
fn top(action_no: i32, known: &Known, full: Vec<Lane>, below: i64, lane_zero: bool) -> (Option<i32>, Looked) {
    let (priorities, lanes, starts) = known.below(below);
    let (rows, looked) = TOP.look((action_no, below, known.rest, priorities, lanes, starts, full, lane_zero));
    (rows.into_iter().next().flatten(), looked)
}

/// What it has cost to find some entries.
#[derive(Default)]
struct Cost {
    pages: Cell<u64>,
    met: Cell<usize>,
}

impl Cost {
    fn add(&self, looked: &Looked) {
        self.pages.set(self.pages.get() + looked.pages);
    }

    /// An entry takes some thirty pages at most, with its lane, its task and its group; a lane that is jumped over half
    /// of that.
    fn tell(&self, action_no: i32, jumped_over: usize) {
        lane_marks::has_cost(action_no, self.pages.get(), 32 * self.met.get() + 16 * jumped_over);
    }
}

/// What stands for "all of them" in a LIMIT.
const MOST: i32 = i32::MAX / 4;

fn as_limit(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(MOST).min(MOST)
}

/// Moves up to `most` entries of an action into the lanes of their groups, from where one was met; returns how many.
pub(super) fn move_in(action: &Action, (Reverse(highest), from): Met, most: usize) -> usize {
    assign_transaction_id();
    let moved = changes::MOVE_INTO_LANES.execute((
        action.action_no,
        as_limit(most),
        action.gives_lanes(),
        highest,
        from,
    )) as usize;
    if moved > 0 {
        // Others have passed over them meanwhile.
        wake::ready_for_all(action.action_no);
    }
    moved
}

/// Which of the actions have an entry in a lane that is not full, as far as this transaction can see.
pub(crate) fn with_entries<'a>(actions: impl Iterator<Item = &'a Action>) -> Vec<i32> {
    let laned: Vec<&Action> = actions.filter(|a| a.has_lanes()).collect();
    if laned.is_empty() {
        return Vec::new();
    }
    let full = full_lanes(laned.iter().map(|a| a.name.clone()));
    let has_entry = |action: &Action| {
        let known = known_lanes::known(action.action_no);
        top(action.action_no, &known, full_in(action, &full), ABOVE_ALL, false).0.is_some()
    };
    laned.into_iter().filter(|a| has_entry(a)).map(|a| a.action_no).collect()
}

/// The lanes that are full for an action.
pub(super) fn full_in(action: &Action, full: &[(String, Lane)]) -> Vec<Lane> {
    full.iter().filter(|(name, _)| name.is_empty() || *name == action.name).map(|(_, lane)| *lane).collect()
}
