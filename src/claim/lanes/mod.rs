//! Lanes: the entries of groups whose turn or whose limit has to be looked at before one of them is taken.
//!
//! An entry of a group belongs into the lane of that group (`run.lane`) if its action is fair or has a limit per group,
//! or if the group has a limit of its own; others belong into lane 0. Where that was set after the entry had come, a claim
//! moves it when it meets it. In each priority of an action a lane is a range of `run_lane_idx`. **A lane that is full costs a jump
//! over it**, however many entries wait in it; and full lanes are no more than there are performances in progress, and
//! groups with a limit of 0.
//!
//! What [`next`] finds is a candidate, read without locks, to be claimed by number, which passes over what has changed.

mod level;
mod part;

use std::cmp::Reverse;
use std::collections::HashMap;

use super::candidate::{Candidate, Source};
use super::gates::Met;
use super::jumps::ABOVE_ALL;
use super::turns;
use crate::flow::actions::Action;
use crate::number::{Lane, TaskNo};
use crate::pg::session::assign_transaction_id;
use crate::store::known_lanes;
use crate::store::run::changes;
use crate::store::slot::full_lanes;
use crate::wake;
use level::Level;
use part::{Part, as_limit, top};

/// The next candidates of an action that has lanes: `wanted` of them, if there are so many that are not in `passed`.
/// Higher priorities first; within one of them by turns if the action gives lanes (it is fair, or has a limit per group), else in the
/// order of positions.
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

/// Of up to `most` entries of an action in lane 0, from where one was met, moves those that belong into lanes there; returns how
/// many.
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
        // Others may have passed over them meanwhile.
        wake::ready_for_all(action.action_no);
    }
    moved
}

/// Which of the actions have an entry in a lane that is not full, of what this transaction can see.
pub(crate) fn with_entries<'a>(actions: impl Iterator<Item = &'a Action>) -> Vec<i32> {
    let laned: Vec<&Action> = actions.filter(|a| a.has_lanes()).collect();
    if laned.is_empty() {
        return Vec::new();
    }
    let full = full_lanes(laned.iter().map(|a| a.named.name.clone()));
    let has_entry = |action: &Action| {
        let known = known_lanes::known(action.action_no);
        top(action.action_no, &known, full_in(action, &full), ABOVE_ALL, false).0.is_some()
    };
    laned.into_iter().filter(|a| has_entry(a)).map(|a| a.action_no).collect()
}

/// The lanes that are full for an action.
pub(super) fn full_in(action: &Action, full: &[(String, Lane)]) -> Vec<Lane> {
    full.iter()
        .filter(|(name, _)| name.is_empty() || *name == action.named.name)
        .map(|(_, lane)| *lane)
        .collect()
}
