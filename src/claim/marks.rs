//! Low-water marks: where a claim begins.
//!
//! Entries of tasks in progress stay in the index of claiming, and so do dead ones until vacuum may remove them, which
//! a snapshot that a session holds for hours prevents. A claim that began at the beginning would pass them all, each
//! time. So a backend keeps, for each action and priority that it has been granted tasks of, the position before which
//! there is nothing to be granted: not now, and never again. An abort leaves nothing wrong.
//!
//! **No entry is missed.** Up to the bound of a look (see [`decided`](crate::store::decided)) it sees each entry, as
//! grantable or as granted. One that it sees as granted was granted by a transaction that has committed, and such an
//! entry comes back at a new position, if at all. So nothing can be had before the first that it sees as grantable,
//! locked or not, nor, if it sees none, up to the bound: the mark moves up to there.
//!
//! A transaction that holds an id for long, anywhere in the cluster, keeps the bound where it is, and claims pass what
//! comes behind it as if there were no marks. A transaction that only reads does not.
//!
//! **A transaction that has an id** has granted something itself, or may have. It sees that as granted, but a rollback to a
//! savepoint brings it back to its old position, for this transaction, and an abort for all. So what it concludes from what
//! others have decided is good for itself alone, until the next end of a (sub)transaction by which something may be undone.
//! Without that, a loop of calls in one transaction would pass all that it has done before, in each.
//!
//! **Marks are found out anew** after a while ([`decided`](crate::store::decided) says why), bit by bit ([`recheck`]): a mark
//! stays where it is as long as nothing is found before it, and no call scans all the way. A backend that has no marks of an
//! action takes over what others have written down of theirs ([`shared`]).
//!
//! Where marks cannot move, a call still scans once only: its claim and what comes after it begin at the first entry
//! that its look has seen ([`ranges_of_look`]). What is committed meanwhile with an earlier position is for the call
//! that this commit wakes, and for the next call.
//!
//! Lanes have others, which go by the bounds of these: see [`lane_marks`](super::lane_marks).

mod recheck;
mod shared;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use super::Grant;
use crate::number::{Lane, Position};
use crate::pg::clock::Time;
use crate::pg::{clock, session};
use crate::store::at_end;
use crate::store::decided::{Decided, Look, Standing};
use crate::store::{known_lanes, run};
use recheck::Recheck;

pub(crate) use recheck::Part;
pub(super) use shared::share;

/// How many priorities of an action have marks; of more, those that tasks were granted of last.
const MOST_PRIORITIES: usize = 8;

/// Of how many actions marks are kept, and looked after in one call.
const MOST_ACTIONS: usize = 256;

/// The stretches of the claiming index in which entries may be grantable, in columns: for each action in descending
/// order of priority.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ranges {
    action_nos: Vec<i32>,
    /// The highest priority of each stretch, and the lowest. Above the first and between marks there may be priorities
    /// that this backend does not know.
    highest: Vec<i32>,
    lowest: Vec<i32>,
    /// The first position to look at; the end, if there is nothing in the stretch for this call.
    starts: Vec<Position>,
}

/// One of them.
pub(super) struct Stretch {
    /// Where it stands among them.
    pub(super) at: usize,
    pub(super) action_no: i32,
    pub(super) highest: i32,
    pub(super) lowest: i32,
    pub(super) start: Position,
}

/// The marks of some actions, in columns.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Known {
    action_nos: Vec<i32>,
    priorities: Vec<i32>,
    starts: Vec<Position>,
    /// What else is to be walked, so that the marks may stay.
    pub(crate) part: Option<Part>,
}

/// What one look, with one snapshot, has seen.
pub(crate) struct Seen {
    /// Of each mark asked for, in their order, the first position from there on that is grantable in the snapshot.
    pub(crate) firsts: Vec<Option<Position>>,
    pub(crate) look: Look,
    /// What the walk through that part has come to.
    pub(crate) part: Option<run::Walked>,
    /// All transactions before this one had ended, but for that which looks.
    pub(crate) xmin_of_others: u64,
    /// How many pages it has read.
    pub(crate) pages: u64,
}

#[derive(Default)]
struct Marks {
    decided: Decided,
    /// Up to here every position was decided when the latest look was taken; the beginning if that is not known.
    decided_to: Position,
    /// By action and priority.
    marks: HashMap<i32, BTreeMap<i32, Mark>>,
    /// They are walked to anew.
    recheck: Option<Recheck>,
    /// When it was looked whether others have marks of an action, see [`shared`].
    asked: HashMap<i32, Time>,
    /// How many looks, and how many grants, there were so far.
    looks: u64,
    grants: u64,
}

#[derive(Clone, Copy)]
struct Mark {
    /// Nothing is to be had before this position.
    start: Position,
    own: Option<Own>,
    /// Nothing was to be had before this position when the look of this number was taken.
    seen: (Position, u64),
    /// When the last grant of this priority was, in grants.
    last_grant: u64,
    /// When it was walked to from the beginning, by this backend or by the one whose mark it took over.
    walked_at: Time,
    /// As far as it is shared with others.
    shared: Position,
}

/// Nothing is to be had by this transaction before this position, as long as it has undone nothing.
#[derive(Clone, Copy)]
struct Own {
    start: Position,
    /// What [`at_end::ends`] was then.
    ends: u64,
}

impl Default for Mark {
    fn default() -> Self {
        Mark {
            start: Position::BEGINNING,
            own: None,
            seen: (Position::BEGINNING, 0),
            last_grant: 0,
            walked_at: Time::BEGINNING,
            shared: Position::BEGINNING,
        }
    }
}

impl Mark {
    /// Nothing is to be had now before this position.
    fn begins(&self) -> Position {
        let own = self.own.filter(|own| own.ends == at_end::ends());
        own.map_or(self.start, |own| self.start.max(own.start))
    }

    fn forget(&mut self) {
        *self = Mark { last_grant: self.last_grant, ..Mark::default() };
    }

    /// There is something at this position after all.
    fn go_back_to(&mut self, position: Position) {
        if position < self.begins() {
            (self.own, self.seen) = (None, Mark::default().seen);
        }
        self.start = self.start.min(position);
    }
}

thread_local! {
    static MARKS: RefCell<Marks> = RefCell::default();
}

/// Where entries of these actions were when this call looked: for what follows the look in the same call. What that
/// look did not include is walked from its mark.
pub(crate) fn ranges_of_look(action_nos: &[i32]) -> Ranges {
    MARKS.with_borrow(|marks| marks.ranges_of_look(action_nos))
}

/// The marks of these actions, to be looked after.
pub(crate) fn known(action_nos: &[i32]) -> Known {
    shared::take_over(action_nos);
    MARKS.with_borrow(|marks| marks.known(action_nos))
}

/// Moves the marks up, as far as a look at them allows.
pub(crate) fn advance(known: &Known, seen: &Seen) {
    MARKS.with_borrow_mut(|marks| {
        marks.decided_to = Position::BEGINNING;
        if marks.note(known, seen) != Standing::Holds {
            known_lanes::forget();
            // Nothing is concluded from this look, but from the next one perhaps what this one has read.
            marks.decided.bound(&seen.look, session::has_transaction_id());
        } else if session::has_transaction_id() {
            at_end::listen();
            if let Some(bound) = marks.decided.bound_of_others(&seen.look, seen.xmin_of_others) {
                marks.advance_own(known, seen, bound, at_end::ends());
            }
        } else if let Some(bound) = marks.decided.bound(&seen.look, false) {
            marks.decided_to = bound;
            marks.advance(known, seen, bound);
        }
        marks.go_on_rechecking(known, seen);
    });
}

/// This call claims without a look. What an earlier one has seen may be otherwise by now: what a savepoint had taken is back
/// where it was. So it goes by the marks alone.
pub(crate) fn without_look() {
    MARKS.with_borrow_mut(|marks| {
        marks.looks += 1;
        marks.decided_to = Position::BEGINNING;
    });
}

/// Up to where every position was decided when this call looked: what has a place up to there and is not seen by what
/// follows the look will never be.
pub(super) fn decided() -> Position {
    MARKS.with_borrow(|marks| marks.decided_to)
}

/// What was concluded from the bound of this call's look has cost so many pages.
pub(super) fn has_cost(pages: u64) {
    MARKS.with_borrow_mut(|marks| marks.decided.has_cost(clock::wall(), pages));
}

/// Remembers the priorities of tasks that were granted.
pub(super) fn learn(grants: &[Grant]) {
    MARKS.with_borrow_mut(|marks| {
        for grant in grants.iter().filter(|g| g.lane == Lane::NONE) {
            marks.learn(grant.action_no, grant.priority);
        }
    });
}

impl Known {
    /// Action, priority and start of each.
    pub(crate) fn each(&self) -> impl Iterator<Item = (i32, i32, Position)> {
        self.action_nos.iter().zip(&self.priorities).zip(&self.starts).map(|((a, p), s)| (*a, *p, *s))
    }
}

impl Marks {
    fn ranges(&self, action_nos: &[i32], start: impl Fn(&Mark) -> Position) -> Ranges {
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

    fn known(&self, action_nos: &[i32]) -> Known {
        let mut known = Known::default();
        for action_no in action_nos.iter().take(MOST_ACTIONS) {
            for (priority, mark) in self.marks.get(action_no).into_iter().flatten() {
                known.action_nos.push(*action_no);
                known.priorities.push(*priority);
                known.starts.push(mark.begins());
            }
        }
        known.part = self.part();
        known
    }

    fn ranges_of_look(&self, action_nos: &[i32]) -> Ranges {
        let seen = |mark: &Mark| if mark.seen.1 == self.looks { mark.seen.0 } else { Position::BEGINNING };
        self.ranges(action_nos, |mark| mark.begins().max(seen(mark)))
    }

    /// Remembers what the look has seen; or, if positions are not what they were, that nothing is known.
    fn note(&mut self, known: &Known, seen: &Seen) -> Standing {
        self.looks += 1;
        let standing = self.decided.standing(&seen.look);
        match standing {
            Standing::Holds => {
                self.decided.has_cost(seen.look.at, seen.pages);
                let nothing_before = seen.look.last_position.next();
                let look = self.looks;
                self.each(known, seen, |mark, first| mark.seen = (first.unwrap_or(nothing_before), look));
            }
            Standing::Aged => self.begin_recheck(seen.look.at),
            Standing::Void => {
                self.recheck = None;
                self.asked.clear();
                // The priorities are kept: a backend that is granted nothing more would walk all the way each time.
                self.marks.values_mut().flat_map(BTreeMap::values_mut).for_each(Mark::forget);
            }
        }
        standing
    }

    fn advance(&mut self, known: &Known, seen: &Seen, bound: Position) {
        let (behind, at) = (bound.next(), seen.look.at);
        self.each(known, seen, |mark, first| {
            if mark.start == Position::BEGINNING {
                mark.walked_at = at;
            }
            mark.start = mark.start.max(first.map_or(behind, |first| first.min(behind)));
        });
    }

    /// The same for this transaction alone, for as long as it undoes nothing.
    fn advance_own(&mut self, known: &Known, seen: &Seen, bound: Position, ends: u64) {
        let behind = bound.next();
        self.each(known, seen, |mark, first| {
            let start = mark.begins().max(first.map_or(behind, |first| first.min(behind)));
            mark.own = Some(Own { start, ends });
        });
    }

    /// Each mark that was asked for, with the first position that was seen.
    fn each(&mut self, known: &Known, seen: &Seen, mut f: impl FnMut(&mut Mark, Option<Position>)) {
        for ((action_no, priority), first) in known.action_nos.iter().zip(&known.priorities).zip(&seen.firsts)
        {
            if let Some(mark) = self.marks.get_mut(action_no).and_then(|marks| marks.get_mut(priority)) {
                f(mark, *first);
            }
        }
    }

    fn learn(&mut self, action_no: i32, priority: i32) {
        self.grants += 1;
        if !self.marks.contains_key(&action_no) && self.marks.len() >= MOST_ACTIONS {
            self.marks.clear();
        }
        let marks = self.marks.entry(action_no).or_default();
        if !marks.contains_key(&priority) && marks.len() >= MOST_PRIORITIES {
            let oldest = marks.iter().min_by_key(|(_, mark)| mark.last_grant).map(|(priority, _)| *priority);
            marks.remove(&oldest.unwrap_or(priority));
        }
        marks.entry(priority).or_default().last_grant = self.grants;
    }
}

impl Ranges {
    /// Whether they are of one action, or of none.
    pub(super) fn single(&self) -> bool {
        self.action_nos.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// The stretches, in order.
    pub(super) fn each(&self) -> impl Iterator<Item = Stretch> {
        (0..self.action_nos.len()).filter_map(|i| self.stretch(i))
    }

    /// The call has seen that there is nothing in a stretch before this position, and walks it from there on. (What is committed
    /// meanwhile is for those whom that commit wakes, and for the next call.)
    pub(super) fn go_on(&mut self, at: usize, from: Position) {
        self.starts[at] = from.max(self.starts[at]);
    }

    /// The stretches of each action.
    pub(super) fn by_action(&self) -> impl Iterator<Item = impl Iterator<Item = Stretch>> {
        let mut from = 0;
        self.action_nos.chunk_by(|a, b| a == b).map(move |chunk| {
            let first = from;
            from += chunk.len();
            (first..from).filter_map(|i| self.stretch(i))
        })
    }

    fn stretch(&self, i: usize) -> Option<Stretch> {
        (self.starts[i] < Position::END).then(|| Stretch {
            at: i,
            action_no: self.action_nos[i],
            highest: self.highest[i],
            lowest: self.lowest[i],
            start: self.starts[i],
        })
    }

    /// For `unnest(…) AS a(action_no, highest, lowest, start)`.
    pub(crate) fn columns(&self) -> (&[i32], &[i32], &[i32], &[Position]) {
        (&self.action_nos, &self.highest, &self.lowest, &self.starts)
    }

    fn add(&mut self, action_no: i32, highest: i64, lowest: i64, start: Position) {
        // Beyond the largest and the smallest priority there is nothing.
        if let (Ok(top), Ok(bottom)) = (i32::try_from(highest), i32::try_from(lowest))
            && top >= bottom
        {
            self.action_nos.push(action_no);
            self.highest.push(top);
            self.lowest.push(bottom);
            self.starts.push(start);
        }
    }
}

#[cfg(test)]
mod tests;
