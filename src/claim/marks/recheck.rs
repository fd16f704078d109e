//! Whether marks still hold is found out by a walk from the beginning, a part of which each look takes.
//!
//! A mark could be forgotten instead, and found out by the next claim. That would walk all the way in one call, which takes
//! seconds where millions of entries are dead, again and again. What a look finds in its part as grantable, before a mark, is where
//! the mark goes back to.

use super::{Known, Marks, Seen};
use crate::number::Position;
use crate::pg::clock::Time;
use crate::store::run::Walked;

/// How many entries of the index a look comes upon at most in its part: some tenths of a millisecond, if they are dead.
const MOST_ENTRIES: u64 = 1_024;

/// A part of a stretch, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) action_no: i32,
    pub(crate) priority: i32,
    pub(crate) from: Position,
    pub(crate) to: Position,
    /// How many entries of the index are walked over at most.
    pub(crate) most: u64,
}

/// How far it is done.
pub(super) struct Recheck {
    began: Time,
    /// Actions and priorities whose marks are still to be walked to; the last one first.
    left: Vec<(i32, i32)>,
    /// To where the first of them is walked.
    from: Position,
    /// How many positions the next part has.
    width: usize,
}

impl Marks {
    /// All marks are to be walked to anew, if that is not under way.
    pub(super) fn begin_recheck(&mut self, at: Time) {
        if self.recheck.is_some() {
            return;
        }
        let marks = self
            .marks
            .iter()
            .flat_map(|(action_no, marks)| marks.iter().map(|(p, mark)| (*action_no, *p, mark)));
        let left =
            marks.filter(|(.., mark)| mark.start > Position::BEGINNING).map(|(a, p, _)| (a, p)).collect();
        self.recheck =
            Some(Recheck { began: at, left, from: Position::BEGINNING, width: MOST_ENTRIES as usize });
    }

    /// What the next look walks besides.
    pub(super) fn part(&self) -> Option<Part> {
        let recheck = self.recheck.as_ref()?;
        let (action_no, priority) = *recheck.left.last()?;
        let to = recheck.from.plus(recheck.width - 1);
        // Less than one position it cannot be.
        let most = if recheck.width == 1 { u64::MAX } else { MOST_ENTRIES };
        Some(Part { action_no, priority, from: recheck.from, to, most })
    }

    /// Goes on with what a look has found in its part.
    pub(super) fn go_on_rechecking(&mut self, known: &Known, seen: &Seen) {
        let Some(recheck) = &mut self.recheck else { return };
        if let (Some(part), Some(walked)) = (known.part, seen.part) {
            let mark = self.marks.get_mut(&part.action_no).and_then(|marks| marks.get_mut(&part.priority));
            let is_next =
                recheck.left.last() == Some(&(part.action_no, part.priority)) && recheck.from == part.from;
            match (mark, walked) {
                _ if !is_next => {}
                (Some(mark), Walked::Found(position)) => {
                    mark.go_back_to(position);
                    recheck.next(&mut |began| mark.walked_at = began);
                }
                (Some(mark), Walked::Nothing(_)) if part.to.next() >= mark.start => {
                    recheck.next(&mut |began| mark.walked_at = began);
                }
                (Some(_), Walked::Nothing(entries)) => {
                    recheck.from = part.to.next();
                    if entries < MOST_ENTRIES / 4 {
                        recheck.width = recheck.width.saturating_mul(4);
                    }
                }
                (Some(_), Walked::TooMuch) => recheck.width = (recheck.width / 4).max(1),
                // Another priority has taken its place.
                (None, _) => recheck.next(&mut |_| {}),
            }
        }
        if recheck.left.is_empty() {
            self.decided.found_anew(recheck.began, seen.look.at);
            self.recheck = None;
        }
    }
}

impl Recheck {
    fn next(&mut self, walked_to: &mut dyn FnMut(Time)) {
        walked_to(self.began);
        self.left.pop();
        (self.from, self.width) = (Position::BEGINNING, MOST_ENTRIES as usize);
    }
}
