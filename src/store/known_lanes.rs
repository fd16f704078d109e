//! What a backend knows of the lanes of actions: before which position there is nothing to be had in them.
//!
//! Each lane has what is done and in progress at its low end, as the order of claiming has. So a backend remembers of an
//! action one position before which no lane has anything, and the lanes that are excepted: those in which something has
//! waited for longer, with where that begins. Jumps from lane to lane then look at no rows before that position, and into
//! the excepted lanes from their marks on. What is known comes from a look of the claim (`claim::lane_marks`).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::memory::{Belief, Memory, Remembered};
use crate::number::{Lane, Position};

/// How many lanes of an action may be excepted.
const MOST_LANES: usize = 1_024;

/// What is known of the lanes of an action.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Before this position no lane has anything that is not excepted.
    pub(crate) rest: Position,
    /// The excepted lanes, in the order of priorities and lanes.
    priorities: Vec<i32>,
    lanes: Vec<Lane>,
    /// Where they begin.
    starts: Vec<Position>,
    /// How many pages it takes to find that out anew, and how many claims have read needlessly since.
    cost: u64,
    wasted: u64,
}

/// By action.
static KNOWN: Memory<Remembered<i32, Known>> = Memory::of(Belief::Lanes);

/// What is known of the lanes of an action.
pub(crate) fn known(action_no: i32) -> Known {
    KNOWN.with(|known| known.get(&action_no).cloned().unwrap_or_default())
}

/// Before this position no lane of the action has anything that is not excepted.
pub(crate) fn rest(action_no: i32) -> Position {
    KNOWN.with(|known| known.get(&action_no).map_or(Position::BEGINNING, |known| known.rest))
}

/// The actions of which something is known, in ascending order.
pub(super) fn actions() -> Vec<i32> {
    let mut all: Vec<i32> = KNOWN.with(|known| known.keys().copied().collect());
    all.sort_unstable();
    all
}

/// Whether any lane of the action is excepted.
pub(crate) fn has_excepted(action_no: i32) -> bool {
    KNOWN.with(|known| known.get(&action_no).is_some_and(|known| !known.lanes.is_empty()))
}

/// A claim has read so many pages needlessly. Returns whether another look is worth it: the claims since the last one, this one
/// included, have wasted as many pages together as that has read, or nothing is known of the action's lanes.
pub(crate) fn is_worth_a_look(action_no: i32, pages: u64) -> bool {
    KNOWN.with(|known| {
        let Some(known) = known.get_mut(&action_no) else { return true };
        known.wasted = known.wasted.saturating_add(pages);
        known.wasted >= known.cost
    })
}

/// Everything up to a bound is decided, and these are the first entries of the lanes, by priority and lane. So many pages
/// were read to find that out.
pub(crate) fn remember(
    action_no: i32,
    bound: Position,
    firsts: BTreeMap<(Reverse<i32>, Lane), Position>,
    cost: u64,
) {
    KNOWN.with(|known| known.note(action_no, Known { cost, ..Known::up_to(bound, firsts) }));
}

impl Known {
    /// The excepted lanes below a priority, in the order of priorities and lanes: their priorities, they, and where they begin.
    pub(crate) fn below(&self, priority: i64) -> (&[i32], &[Lane], &[Position]) {
        let from = self.priorities.partition_point(|of| i64::from(*of) >= priority);
        (&self.priorities[from..], &self.lanes[from..], &self.starts[from..])
    }

    /// The excepted lanes of a priority from one to another, and where they begin.
    pub(crate) fn excepted(&self, priority: i32, from: Lane, to: Lane) -> (Vec<Lane>, Vec<Position>) {
        let all = self.priorities.iter().zip(self.lanes.iter().zip(&self.starts));
        all.filter(|(of, (lane, _))| **of == priority && (from..=to).contains(*lane))
            .map(|(_, (lane, start))| (*lane, *start))
            .unzip()
    }

    /// What is known once everything up to a bound is decided, and these are the first entries of the lanes.
    fn up_to(bound: Position, firsts: BTreeMap<(Reverse<i32>, Lane), Position>) -> Self {
        let mut rest = bound.next();
        // What excepts a lane asks for those before it, by its number less one.
        if let Some(first) =
            firsts.iter().filter(|((_, lane), _)| *lane == Lane::FIRST).map(|(_, first)| *first).min()
        {
            rest = rest.min(first);
        }
        let mut waiting: Vec<Position> = firsts.values().copied().filter(|first| *first < rest).collect();
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

    fn excepted(known: &Known, priority: i32, from: i64, to: i64) -> (Vec<i64>, Vec<i64>) {
        let (lanes, starts) = known.excepted(priority, Lane(from), Lane(to));
        (lanes.into_iter().map(|lane| lane.0).collect(), starts.into_iter().map(|start| start.0).collect())
    }

    #[test]
    fn what_has_waited_for_longer_is_excepted() {
        let firsts = [((0, 7), 90), ((0, -7), 20), ((5, 3), 101), ((9, 3), 100)];
        let firsts = firsts
            .into_iter()
            .map(|((priority, lane), first)| ((Reverse(priority), Lane(lane)), Position(first)));
        let known = Known::up_to(Position(100), firsts.collect());
        assert_eq!(known.rest, Position(101));
        assert_eq!(known.priorities, [9, 0, 0], "in the order of the index");
        assert_eq!([10, 9, 0].map(|priority| known.below(priority).0.len()), [3, 2, 0]);
        assert_eq!(excepted(&known, 0, i64::MIN, i64::MAX), (vec![-7, 7], vec![20, 90]));
        assert_eq!(excepted(&known, 0, -6, 7), (vec![7], vec![90]));
        assert_eq!(excepted(&known, 9, i64::MIN, 3), (vec![3], vec![100]));
        assert_eq!(
            excepted(&known, 5, i64::MIN, i64::MAX),
            (vec![], vec![]),
            "it is behind the common position"
        );
    }

    #[test]
    fn of_very_many_lanes_none_is_forgotten() {
        for more in [0, 1, 10] {
            let all = MOST_LANES as i64 + more;
            let known = Known::up_to(
                Position(10_000),
                (0..all).map(|lane| ((Reverse(0), Lane(lane)), Position(5_000 - lane))).collect(),
            );
            assert_eq!(known.lanes.len(), MOST_LANES);
            for lane in 0..all {
                let first = 5_000 - lane;
                let excepted = excepted(&known, 0, lane, lane) == (vec![lane], vec![first]);
                assert!(excepted || Position(first) >= known.rest, "lane {lane} of {all}");
            }
        }
    }
}
