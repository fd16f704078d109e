//! An entry that a claim may choose, and the actions that it chooses from.

use super::turns::Turn;
use crate::flow::actions::Action;
use crate::number::{Lane, Position, TaskNo};

/// An entry that may be next.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// The number of the task.
    pub(super) task_no: TaskNo,
    /// The number that stands for its action.
    pub(super) action_no: i32,
    /// Its priority; higher ones are granted first.
    pub(super) priority: i32,
    /// Where it stands among the entries of its priority.
    pub(super) position: Position,
    /// The lane that it is in; [`Lane::NONE`]: none.
    pub(super) lane: Lane,
    /// Its group, if it is in a lane.
    pub(super) group: Option<String>,
    /// Whose turn it is once it is taken, if its action gives lanes.
    pub(super) turn: Option<Turn>,
}

/// An action whose entries a claim may take.
pub(super) struct Source<'a> {
    /// The action under one of its numbers, with what is set for it.
    pub(super) action: &'a Action,
    /// Entries may be in lanes, or belong there.
    pub(super) laned: bool,
    /// Lanes that have nothing to give.
    pub(super) full: Vec<Lane>,
    /// Whose turn it is in the action is remembered by this number: the first of those that stand for its name.
    pub(super) turns: i32,
}

impl Source<'_> {
    /// The lanes that have nothing to give, as a list of its own for a statement.
    pub(super) fn full_lanes(&self) -> Vec<Lane> {
        self.full.clone()
    }
}
