//! Whether marks still hold is found out by a walk from the beginning, a part of which each look takes.
//!
//! A mark could be forgotten instead, and found out by the next claim. That would walk all the way in one call, which may take
//! seconds where millions of entries are dead, again and again. What a look finds in its part as grantable, before a mark, is where
//! the mark goes back to.

use super::mark::ByAction;
use crate::number::Position;
use crate::pg::clock::Wall;
use crate::store::run::Walked;

/// How many entries of the index a look comes upon at most in its part, so that none takes long. A part of one
/// position cannot be cut further, and is walked to its end.
const MOST_ENTRIES: u64 = 1_024;

/// A part of a stretch, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The action whose mark is walked to.
    pub(crate) action_no: i32,
    /// The priority whose mark is walked to.
    pub(crate) priority: i32,
    /// The first position of the part.
    pub(crate) from: Position,
    /// The last position of the part.
    pub(crate) to: Position,
    /// How many entries of the index are walked over at most.
    pub(crate) most: u64,
}

/// How far it is done.
pub(super) struct Recheck {
    began: Wall,
    /// Actions and priorities whose marks are still to be walked to; the last one first.
    left: Vec<(i32, i32)>,
    /// To where the one that is next is walked.
    from: Position,
    /// How many positions the next part has.
    width: usize,
}

impl Recheck {
    /// All marks are to be walked to anew.
    pub(super) fn new(marks: &ByAction, at: Wall) -> Self {
        let each =
            marks.iter().flat_map(|(action_no, marks)| marks.iter().map(|(p, mark)| (*action_no, *p, mark)));
        let left =
            each.filter(|(.., mark)| mark.start > Position::BEGINNING).map(|(a, p, _)| (a, p)).collect();
        Recheck { began: at, left, from: Position::BEGINNING, width: MOST_ENTRIES as usize }
    }

    /// What the next look walks besides.
    pub(super) fn part(&self) -> Option<Part> {
        let (action_no, priority) = *self.left.last()?;
        let to = self.from.plus(self.width - 1);
        // Less than one position it cannot be.
        let most = if self.width == 1 { u64::MAX } else { MOST_ENTRIES };
        Some(Part { action_no, priority, from: self.from, to, most })
    }

    /// Goes on with what a look has found in that part.
    pub(super) fn go_on(&mut self, marks: &mut ByAction, part: Part, walked: Walked) {
        let mark = marks.get_mut(&part.action_no).and_then(|marks| marks.get_mut(&part.priority));
        let is_next = self.left.last() == Some(&(part.action_no, part.priority)) && self.from == part.from;
        match (mark, walked) {
            _ if !is_next => {}
            (Some(mark), Walked::Found(position)) => {
                mark.go_back_to(position);
                mark.walked_at = self.began;
                self.next();
            }
            (Some(mark), Walked::Nothing(_)) if part.to.next() >= mark.start => {
                mark.walked_at = self.began;
                self.next();
            }
            (Some(_), Walked::Nothing(entries)) => {
                self.from = part.to.next();
                if entries < MOST_ENTRIES / 4 {
                    self.width = self.width.saturating_mul(4);
                }
            }
            (Some(_), Walked::TooMuch) => self.width = (self.width / 4).max(1),
            // It has lost its place to others.
            (None, _) => self.next(),
        }
    }

    /// When it began, if all marks have been walked to.
    pub(super) fn is_done(&self) -> Option<Wall> {
        self.left.is_empty().then_some(self.began)
    }

    fn next(&mut self) {
        self.left.pop();
        (self.from, self.width) = (Position::BEGINNING, MOST_ENTRIES as usize);
    }
}
