//! The marks that this backend keeps, and what one look does to them.

use std::collections::BTreeMap;

use super::mark::{ByAction, Mark, Own};
use super::ranges::Ranges;
use crate::memory::{Belief, Memory, Now, Remembers, Rule, Shown};
use crate::number::Position;
use crate::store::decided::{Decided, Look};

/// How many priorities of an action have marks at most; of more, those that tasks were granted of last.
pub(super) const MOST_PRIORITIES: usize = 8;

/// Of how many actions marks are kept at most, and looked after in one call.
pub(super) const MOST_ACTIONS: usize = 256;

/// The marks of some actions, in columns.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Known {
    /// The action of each mark.
    pub(super) action_nos: Vec<i32>,
    /// The priority of each mark.
    pub(super) priorities: Vec<i32>,
    /// The position of each mark: nothing is to be had before it.
    pub(super) starts: Vec<Position>,
}

/// What one look, with one snapshot, has seen.
pub(crate) struct Seen {
    /// Of each mark asked for, in their order, the first position from there on that is grantable in the snapshot.
    pub(crate) firsts: Vec<Option<Position>>,
    /// What the bound of the look follows from.
    pub(crate) look: Look,
    /// All transactions before this one had ended, the one that looks aside.
    pub(crate) xmin_of_others: u64,
}

/// What this backend knows of where claims begin.
#[derive(Default)]
pub(super) struct Marks {
    /// What it knows of the positions.
    pub(super) decided: Decided,
    /// Up to here every position was decided when the latest look was taken; the beginning if that is not known.
    pub(super) decided_to: Position,
    /// By action and priority.
    pub(super) marks: ByAction,
    /// How many looks there were so far.
    pub(super) looks: u64,
    /// How many grants there were so far.
    pub(super) grants: u64,
}

/// Those of this session.
pub(super) static MARKS: Memory<Marks> = Memory::of(Belief::Marks);

impl Remembers for Marks {
    fn new(_: &'static Rule) -> Self {
        Marks::default()
    }

    fn forget(&mut self) {
        *self = Marks::default();
    }

    fn shown(&self, _: Now) -> Shown {
        self.decided.shown(self.marks.values().map(BTreeMap::len).sum())
    }
}

impl Known {
    /// Action, priority and start of each.
    pub(crate) fn each(&self) -> impl Iterator<Item = (i32, i32, Position)> {
        self.action_nos.iter().zip(&self.priorities).zip(&self.starts).map(|((a, p), s)| (*a, *p, *s))
    }
}

impl Marks {
    /// The stretches of these actions: each marked priority from `start` on, the others from the beginning.
    pub(super) fn ranges(&self, action_nos: &[i32], start: impl Fn(&Mark) -> Position) -> Ranges {
        let mut ranges = Ranges::default();
        for action_no in action_nos {
            let mut highest = i64::from(i32::MAX);
            for (priority, mark) in self.marks.get(action_no).into_iter().flatten().rev() {
                let priority = i64::from(*priority);
                ranges.add(*action_no, highest, priority + 1, Position::BEGINNING);
                ranges.add(*action_no, priority, priority, start(mark));
                highest = priority - 1;
            }
            ranges.add(*action_no, highest, i64::from(i32::MIN), Position::BEGINNING);
        }
        ranges
    }

    /// The marks of the first [`MOST_ACTIONS`] of these actions.
    pub(super) fn known(&self, action_nos: &[i32]) -> Known {
        let mut known = Known::default();
        for action_no in action_nos.iter().take(MOST_ACTIONS) {
            for (priority, mark) in self.marks.get(action_no).into_iter().flatten() {
                known.action_nos.push(*action_no);
                known.priorities.push(*priority);
                known.starts.push(mark.begins());
            }
        }
        known
    }

    /// Where claims of these actions begin: where the latest look has seen something, or at the marks.
    pub(super) fn ranges_of_look(&self, action_nos: &[i32]) -> Ranges {
        let seen = |mark: &Mark| if mark.seen.1 == self.looks { mark.seen.0 } else { Position::BEGINNING };
        self.ranges(action_nos, |mark| mark.begins().max(seen(mark)))
    }

    /// Remembers what the look has seen. Where positions are not what they were, nothing is known, and this is false.
    pub(super) fn note(&mut self, known: &Known, seen: &Seen) -> bool {
        self.looks += 1;
        let holds = self.decided.still_holds(&seen.look);
        if holds {
            let nothing_before = seen.look.last_position.next();
            let look = self.looks;
            self.each(known, seen, |mark, first| mark.seen = (first.unwrap_or(nothing_before), look));
        } else {
            // The priorities are kept: a backend that is granted nothing more would walk all the way each time.
            self.marks.values_mut().flat_map(BTreeMap::values_mut).for_each(Mark::forget);
        }
        holds
    }

    /// Moves marks up to what the look has seen first, and no further than behind the bound.
    pub(super) fn advance(&mut self, known: &Known, seen: &Seen, bound: Position) {
        let behind = bound.next();
        self.each(known, seen, |mark, first| {
            mark.start = mark.start.max(first.map_or(behind, |first| first.min(behind)));
        });
    }

    /// The same for this transaction alone, for as long as it undoes nothing.
    pub(super) fn advance_own(&mut self, known: &Known, seen: &Seen, bound: Position, ends: u64) {
        let behind = bound.next();
        self.each(known, seen, |mark, first| {
            let start = mark.begins().max(first.map_or(behind, |first| first.min(behind)));
            mark.own = Some(Own { start, ends });
        });
    }

    /// Each mark that was asked for, with the first position that was seen.
    pub(super) fn each(
        &mut self,
        known: &Known,
        seen: &Seen,
        mut f: impl FnMut(&mut Mark, Option<Position>),
    ) {
        for ((action_no, priority), first) in known.action_nos.iter().zip(&known.priorities).zip(&seen.firsts)
        {
            if let Some(mark) = self.marks.get_mut(action_no).and_then(|marks| marks.get_mut(priority)) {
                f(mark, *first);
            }
        }
    }

    /// A task of this action and priority was granted: they have a mark from now on. Where there are too many, others lose theirs.
    pub(super) fn learn(&mut self, action_no: i32, priority: i32) {
        self.grants += 1;
        let marks = self.of(action_no);
        if !marks.contains_key(&priority) && marks.len() >= MOST_PRIORITIES {
            let oldest = marks.iter().min_by_key(|(_, mark)| mark.last_grant).map(|(priority, _)| *priority);
            marks.remove(&oldest.unwrap_or(priority));
        }
        let grants = self.grants;
        self.of(action_no).entry(priority).or_default().last_grant = grants;
    }

    /// There are entries of this action and priority: they have a mark from now on, if there is room for it.
    pub(super) fn find(&mut self, action_no: i32, priority: i32) {
        if self.marks.len() < MOST_ACTIONS || self.marks.contains_key(&action_no) {
            let marks = self.of(action_no);
            if marks.len() < MOST_PRIORITIES {
                marks.entry(priority).or_default();
            }
        }
    }

    /// The marks of an action. Where there are too many actions, the others lose theirs.
    fn of(&mut self, action_no: i32) -> &mut BTreeMap<i32, Mark> {
        if !self.marks.contains_key(&action_no) && self.marks.len() >= MOST_ACTIONS {
            self.marks.clear();
        }
        self.marks.entry(action_no).or_default()
    }
}
