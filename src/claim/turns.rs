//! Turns: the lanes of an action that is fair, or has a limit per group, take entries one after the other, each as many
//! in its turn as its weight says.
//!
//! Whose turn it is, each backend remembers for itself. Nothing is stored, so that no claim waits for another's and
//! nothing is hot; with several backends the turns of all of them add up to about the same shares. It is a hint: after a
//! rollback the turn may be another's.

use std::collections::VecDeque;

use crate::memory::{Belief, Memory, Remembered};
use crate::number::Lane;

/// Whose turn it is, and how many entries are left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// The lane whose turn it is.
    pub(super) lane: Lane,
    /// How many more entries it takes in this turn.
    pub(super) left: u32,
}

impl Turn {
    /// The first lane of the ring that may be next.
    pub(super) fn start(self) -> Lane {
        if self.left > 0 { self.lane } else { self.lane.after() }
    }
}

/// By numbers of actions.
static TURNS: Memory<Remembered<i32, Turn>> = Memory::of(Belief::Turns);

/// Whose turn it is in an action, if this backend has granted tasks of it before.
pub(super) fn current(action_no: i32) -> Option<Turn> {
    TURNS.with(|turns| turns.get(&action_no).copied())
}

/// Remembers whose turn it is.
pub(super) fn remember(action_no: i32, turn: Turn) {
    TURNS.with(|turns| turns.note(action_no, turn));
}

/// A lane and its next entries, first in, first out.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// The lane that the entries are in.
    pub(super) lane: Lane,
    /// How many entries it takes in a turn.
    pub(super) weight: u32,
    /// Its next entries, the first one in front.
    pub(super) entries: VecDeque<T>,
}

/// Goes round the lanes, which come in the order of the ring, until `most` entries are taken or none is left. Each
/// comes with the turn after it. A lane that has nothing is passed over; one that is at its turn goes on with what
/// is left of it.
pub(super) fn take<T>(mut lanes: Vec<Queue<T>>, turn: Option<Turn>, most: usize) -> Vec<(T, Turn)> {
    let mut taken = Vec::new();
    let mut under_way = turn;
    while taken.len() < most && lanes.iter().any(|lane| !lane.entries.is_empty()) {
        for lane in &mut lanes {
            let mut left = under_way
                .take()
                .filter(|t| t.lane == lane.lane && t.left > 0)
                .map_or(lane.weight, |t| t.left);
            while left > 0 && taken.len() < most {
                let Some(entry) = lane.entries.pop_front() else { break };
                left -= 1;
                taken.push((entry, Turn { lane: lane.lane, left }));
            }
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(lanes: &[(i64, u32, usize)]) -> Vec<Queue<i64>> {
        lanes
            .iter()
            .map(|(lane, weight, n)| Queue {
                lane: Lane(*lane),
                weight: *weight,
                entries: vec![*lane; *n].into(),
            })
            .collect()
    }

    fn order(taken: &[(i64, Turn)]) -> Vec<i64> {
        taken.iter().map(|(lane, _)| *lane).collect()
    }

    #[test]
    fn lanes_take_turns_by_weight() {
        let taken = take(lanes(&[(1, 1, 9), (2, 3, 9)]), None, 8);
        assert_eq!(order(&taken), [1, 2, 2, 2, 1, 2, 2, 2]);
    }

    #[test]
    fn a_lane_with_nothing_is_passed_over_and_nothing_is_left_lying() {
        let taken = take(lanes(&[(1, 1, 0), (2, 1, 5), (3, 2, 1)]), None, 10);
        assert_eq!(order(&taken), [2, 3, 2, 2, 2, 2]);
        assert!(take(lanes(&[(1, 1, 0)]), None, 10).is_empty());
    }

    #[test]
    fn a_turn_goes_on_where_it_stopped() {
        let taken = take(lanes(&[(2, 3, 9), (5, 1, 9)]), Some(Turn { lane: Lane(2), left: 2 }), 4);
        assert_eq!(order(&taken), [2, 2, 5, 2]);
        assert_eq!(taken[0].1, Turn { lane: Lane(2), left: 1 });
        assert_eq!(taken[3].1, Turn { lane: Lane(2), left: 2 });
        // What was left of the turn of a lane that has nothing now is no other's.
        let taken = take(lanes(&[(5, 1, 9), (7, 1, 9)]), Some(Turn { lane: Lane(2), left: 2 }), 3);
        assert_eq!(order(&taken), [5, 7, 5]);
    }

    #[test]
    fn one_at_a_time_gives_the_same_order_as_many_at_once() {
        let all = [(-4, 2, 6), (0, 1, 6), (9, 3, 6)];
        let at_once = order(&take(lanes(&all), None, 18));
        let (mut left, mut turn, mut one_by_one) = (all, Turn { lane: Lane::LAST, left: 0 }, Vec::new());
        for _ in 0..18 {
            let mut ring = lanes(&left);
            ring.sort_by_key(|l| l.lane.distance_from(turn.start()));
            let (lane, next) = take(ring, Some(turn), 1)[0];
            left.iter_mut().filter(|l| l.0 == lane).for_each(|l| l.2 -= 1);
            turn = next;
            one_by_one.push(lane);
        }
        assert_eq!(one_by_one, at_once);
    }

    #[test]
    fn the_ring_wraps_round() {
        assert_eq!(Turn { lane: Lane::LAST, left: 0 }.start(), Lane::FIRST);
        assert!(Lane(6).distance_from(Lane(5)) < Lane(4).distance_from(Lane(5)));
        assert!(Lane::LAST.distance_from(Lane(5)) < Lane::FIRST.distance_from(Lane(5)));
    }
}
