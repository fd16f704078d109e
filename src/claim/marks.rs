//! Low-water marks: where a claim begins.
//!
//! Entries of tasks in progress stay in the index of claiming, and so do dead ones until vacuum may remove them, which
//! a snapshot that somebody holds for hours forbids. A claim that began at the beginning would pass them all, each
//! time. So a backend keeps, for each action and priority that it has been granted tasks of, the position before which
//! there is nothing to be had: not now, and never again. Nothing is stored, and an abort leaves nothing wrong.
//!
//! **No entry is missed.** Up to the bound of a look (see [`decided`](crate::store::decided)) it sees each entry, as
//! grantable or as granted. One that it sees as granted was granted by a transaction that has committed, and such an
//! entry comes back at a new position, if at all. So nothing can be had before the first that it sees as grantable,
//! locked or not, nor, if it sees none, up to the bound: the mark moves up to there.
//!
//! A transaction that holds an id for long, anywhere in the cluster, keeps the bound where it is, and claims pass what
//! comes behind it as if there were no marks. Who only reads does not.
//!
//! Where marks cannot move, a call still walks once only: its claim and what comes after it begin at the first entry
//! that its look has seen ([`ranges_of_look`]). What is committed meanwhile with an earlier position is for those whom
//! that commit wakes, and for the next call.
//!
//! Lanes have others, which go by the bounds of these: see [`lane_marks`](super::lane_marks).

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use super::Grant;
use crate::pg::{clock, session};
use crate::store::decided::{Decided, Look};
use crate::store::known_lanes;

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
    /// The first position to look at.
    starts: Vec<i64>,
}

/// One of them.
pub(super) struct Stretch {
    pub(super) action_no: i32,
    pub(super) highest: i32,
    pub(super) lowest: i32,
    pub(super) start: i64,
}

/// The marks of some actions, in columns.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Known {
    action_nos: Vec<i32>,
    priorities: Vec<i32>,
    starts: Vec<i64>,
}

/// What one look, with one snapshot, has seen.
pub(crate) struct Seen {
    /// Of each mark asked for, in their order, the first position from there on that is grantable in the snapshot.
    pub(crate) firsts: Vec<Option<i64>>,
    pub(crate) look: Look,
    /// How many pages it has read.
    pub(crate) pages: u64,
}

#[derive(Default)]
struct Marks {
    decided: Decided,
    /// Up to here every position was decided when the latest look was taken; 0 if that cannot be told.
    decided_to: i64,
    /// By action and priority.
    marks: HashMap<i32, BTreeMap<i32, Mark>>,
    /// How many looks, and how many grants, there were so far.
    looks: u64,
    grants: u64,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    /// Nothing is to be had before this position.
    start: i64,
    /// Nothing was to be had before this position when the look of this number was taken.
    seen: (i64, u64),
    /// When the last grant of this priority was, in grants.
    last_grant: u64,
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
    MARKS.with_borrow(|marks| marks.known(action_nos))
}

/// Moves the marks up, as far as a look at them allows.
pub(crate) fn advance(known: &Known, seen: &Seen) {
    MARKS.with_borrow_mut(|marks| {
        marks.decided_to = 0;
        if !marks.note(known, seen) {
            known_lanes::forget();
        } else if let Some(bound) = marks.decided.bound(&seen.look, session::has_transaction_id()) {
            marks.decided_to = bound;
            marks.advance(known, seen, bound);
        }
    });
}

/// Up to where every position was decided when this call looked: what has a place up to there and is not seen by what
/// follows the look will never be.
pub(super) fn decided() -> i64 {
    MARKS.with_borrow(|marks| marks.decided_to)
}

/// What was concluded from the bound of this call's look has cost so many pages.
pub(super) fn has_cost(pages: u64) {
    MARKS.with_borrow_mut(|marks| marks.decided.has_cost(clock::wall(), pages));
}

/// [`ranges_of_look`], from a position on.
pub(super) fn ranges_from(action_nos: &[i32], from: i64) -> Ranges {
    MARKS.with_borrow(|marks| {
        let mut ranges = marks.ranges_of_look(action_nos);
        ranges.starts.iter_mut().for_each(|start| *start = from.max(*start));
        ranges
    })
}

/// Remembers the priority of an entry that was met, so that its stretch is walked from a position on.
pub(super) fn learn_priority(action_no: i32, priority: i32) {
    MARKS.with_borrow_mut(|marks| marks.learn(action_no, priority));
}

/// Remembers the priorities of tasks that were granted.
pub(super) fn learn(grants: &[Grant]) {
    MARKS.with_borrow_mut(|marks| {
        for grant in grants.iter().filter(|g| g.lane == 0) {
            marks.learn(grant.action_no, grant.priority);
        }
    });
}

impl Known {
    /// Action, priority and start of each.
    pub(crate) fn each(&self) -> impl Iterator<Item = (i32, i32, i64)> {
        self.action_nos.iter().zip(&self.priorities).zip(&self.starts).map(|((a, p), s)| (*a, *p, *s))
    }
}

impl Marks {
    fn ranges(&self, action_nos: &[i32], start: impl Fn(&Mark) -> i64) -> Ranges {
        let mut ranges = Ranges::default();
        for action_no in action_nos {
            let mut highest = i64::from(i32::MAX);
            for (priority, mark) in self.marks.get(action_no).into_iter().flatten().rev() {
                let priority = i64::from(*priority);
                ranges.add(*action_no, highest, priority + 1, 0);
                ranges.add(*action_no, priority, priority, start(mark));
                highest = priority - 1;
            }
            ranges.add(*action_no, highest, i64::from(i32::MIN), 0);
        }
        ranges
    }

    fn known(&self, action_nos: &[i32]) -> Known {
        let mut known = Known::default();
        for action_no in action_nos.iter().take(MOST_ACTIONS) {
            for (priority, mark) in self.marks.get(action_no).into_iter().flatten() {
                known.action_nos.push(*action_no);
                known.priorities.push(*priority);
                known.starts.push(mark.start);
            }
        }
        known
    }

    fn ranges_of_look(&self, action_nos: &[i32]) -> Ranges {
        let seen = |mark: &Mark| if mark.seen.1 == self.looks { mark.seen.0 } else { 0 };
        self.ranges(action_nos, |mark| mark.start.max(seen(mark)))
    }

    /// Remembers what the look has seen; or, if positions are not what they were, that nothing is known.
    fn note(&mut self, known: &Known, seen: &Seen) -> bool {
        self.looks += 1;
        let holds = self.decided.holds(&seen.look);
        if holds {
            self.decided.has_cost(seen.look.at, seen.pages);
            let nothing_before = seen.look.last_position + 1;
            let look = self.looks;
            self.each(known, seen, |mark, first| mark.seen = (first.unwrap_or(nothing_before), look));
        } else {
            // The priorities are kept: a backend that is granted nothing more would walk all the way each time.
            self.marks.values_mut().flat_map(BTreeMap::values_mut).for_each(|mark| mark.start = 0);
        }
        holds
    }

    fn advance(&mut self, known: &Known, seen: &Seen, bound: i64) {
        let behind = bound + 1;
        self.each(known, seen, |mark, first| {
            mark.start = mark.start.max(first.map_or(behind, |first| first.min(behind)));
        });
    }

    /// Each mark that was asked for, with the first position that was seen.
    fn each(&mut self, known: &Known, seen: &Seen, mut f: impl FnMut(&mut Mark, Option<i64>)) {
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
        (0..self.action_nos.len()).map(|i| self.stretch(i))
    }

    /// The stretches of each action.
    pub(super) fn by_action(&self) -> impl Iterator<Item = impl Iterator<Item = Stretch>> {
        let mut from = 0;
        self.action_nos.chunk_by(|a, b| a == b).map(move |chunk| {
            let first = from;
            from += chunk.len();
            (first..from).map(|i| self.stretch(i))
        })
    }

    fn stretch(&self, i: usize) -> Stretch {
        Stretch {
            action_no: self.action_nos[i],
            highest: self.highest[i],
            lowest: self.lowest[i],
            start: self.starts[i],
        }
    }

    /// For `unnest(…) AS a(action_no, highest, lowest, start)`.
    pub(crate) fn columns(&self) -> (&[i32], &[i32], &[i32], &[i64]) {
        (&self.action_nos, &self.highest, &self.lowest, &self.starts)
    }

    fn add(&mut self, action_no: i32, highest: i64, lowest: i64, start: i64) {
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
mod tests {
    use pgrx::pg_sys::Oid;

    use super::*;
    use crate::pg::clock::Time;

    /// What a look sees of the marks of action 1: the first grantable position of each priority.
    fn look(marks: &mut Marks, firsts: &[(i32, Option<i64>)], last_position: i64, xmin: u64, next: u64) {
        look_at(marks, &[1], firsts, Look { last_position, files: files(7, 8), xmin, at: Time(0) }, next);
    }

    fn look_at(marks: &mut Marks, actions: &[i32], firsts: &[(i32, Option<i64>)], look: Look, next: u64) {
        let known = marks.known(actions);
        let firsts = known.priorities.iter().map(|p| firsts.iter().find(|(q, _)| q == p).and_then(|f| f.1));
        let seen = Seen { firsts: firsts.collect(), look, pages: 1 };
        if marks.note(&known, &seen)
            && let Some(bound) = marks.decided.bound_before(&look, next)
        {
            marks.advance(&known, &seen, bound);
        }
    }

    fn files(rows: u32, sequence: u32) -> (Oid, Oid) {
        (Oid::from(rows), Oid::from(sequence))
    }

    fn start(marks: &Marks, priority: i32) -> i64 {
        marks.marks[&1][&priority].start
    }

    fn fresh() -> Marks {
        let mut marks = Marks::default();
        marks.learn(1, 0);
        // The first look learns which files there are, and nothing else.
        look(&mut marks, &[(0, Some(1))], 1, 1, 1);
        marks
    }

    #[test]
    fn a_mark_does_not_pass_what_may_still_be_inserted() {
        let mut marks = fresh();
        // Positions up to 100 were taken by transactions before 50; one of them, 40, is open.
        look(&mut marks, &[(0, Some(90))], 100, 40, 50);
        assert_eq!(start(&marks, 0), 0, "nothing is known to be decided");
        look(&mut marks, &[(0, Some(95))], 120, 49, 60);
        assert_eq!(start(&marks, 0), 0, "49 may have taken position 94");
        look(&mut marks, &[(0, Some(95))], 130, 50, 61);
        assert_eq!(start(&marks, 0), 95);
        look(&mut marks, &[(0, None)], 130, 60, 62);
        assert_eq!(start(&marks, 0), 101, "up to the bound, and not beyond");
    }

    #[test]
    fn a_mark_moves_at_once_while_nobody_has_an_id() {
        let mut marks = fresh();
        look(&mut marks, &[(0, Some(90))], 100, 50, 50);
        assert_eq!(start(&marks, 0), 90);
        look(&mut marks, &[(0, None)], 110, 50, 51);
        assert_eq!(start(&marks, 0), 101, "50 was given to somebody who may have taken position 101");
    }

    #[test]
    fn a_mark_does_not_pass_what_is_locked() {
        let mut marks = fresh();
        look(&mut marks, &[(0, Some(3))], 100, 50, 50);
        for xmin in 51..60 {
            look(&mut marks, &[(0, Some(3))], 100 + xmin as i64, xmin, xmin);
        }
        assert_eq!(start(&marks, 0), 3);
    }

    #[test]
    fn what_follows_a_look_begins_where_that_has_seen_something() {
        let mut marks = fresh();
        let starts = |marks: &Marks| marks.ranges_of_look(&[1]).starts;
        look(&mut marks, &[(0, Some(90))], 100, 40, 50);
        assert_eq!((start(&marks, 0), starts(&marks)), (0, vec![0, 90, 0]));
        look(&mut marks, &[(0, None)], 110, 40, 50);
        assert_eq!((start(&marks, 0), starts(&marks)), (0, vec![0, 111, 0]));
        look(&mut marks, &[(0, Some(95))], 110, 40, 50);
        assert_eq!(starts(&marks), [0, 95, 0], "it was committed late");
    }

    #[test]
    fn an_older_snapshot_moves_nothing() {
        let mut marks = fresh();
        look(&mut marks, &[(0, Some(3))], 100, 50, 50);
        look(&mut marks, &[(0, Some(3))], 100, 51, 51);
        look(&mut marks, &[(0, Some(80))], 100, 49, 52);
        assert_eq!(start(&marks, 0), 3, "it does not see what was inserted before the bound");
        look(&mut marks, &[(0, Some(80))], 100, 52, 52);
        assert_eq!(start(&marks, 0), 80);
    }

    #[test]
    fn a_mark_never_goes_back() {
        let mut marks = fresh();
        look(&mut marks, &[(0, None)], 100, 50, 50);
        look(&mut marks, &[(0, None)], 100, 51, 51);
        assert_eq!(start(&marks, 0), 101);
        look(&mut marks, &[(0, Some(101))], 100, 52, 52);
        assert_eq!(start(&marks, 0), 101);
    }

    #[test]
    fn what_a_look_did_not_include_is_walked_from_its_mark() {
        let mut marks = fresh();
        marks.learn(2, 0);
        let at = |last_position, xmin| Look { last_position, files: files(7, 8), xmin, at: Time(0) };
        // 40 is open; what comes behind it is only known to have been seen.
        look_at(&mut marks, &[1, 2], &[(0, Some(90))], at(100, 40), 50);
        look_at(&mut marks, &[2], &[(0, Some(95))], at(110, 40), 55);
        let starts = marks.ranges_of_look(&[1, 2]).starts;
        assert_eq!(starts, [0, 0, 0, 0, 95, 0], "40 may have committed position 30 of action 1 meanwhile");
    }

    #[test]
    fn marks_are_forgotten_when_positions_are_not_what_they_were() {
        let same = Look { last_position: 100, files: files(7, 8), xmin: 60, at: Time(0) };
        for (what, look) in [
            ("TRUNCATE of the rows", Look { last_position: 200, files: files(6, 8), ..same }),
            ("RESTART of the sequence", Look { last_position: 200, files: files(7, 9), ..same }),
            ("setval", Look { last_position: 99, ..same }),
            ("a while", Look { last_position: 200, at: Time(10_000_000), ..same }),
        ] {
            let mut marks = fresh();
            super::tests::look(&mut marks, &[(0, None)], 100, 50, 50);
            super::tests::look(&mut marks, &[(0, None)], 100, 51, 51);
            assert_eq!(start(&marks, 0), 101);
            look_at(&mut marks, &[1], &[(0, Some(120))], same, 60);
            assert_eq!(start(&marks, 0), 101, "nothing has changed");
            look_at(&mut marks, &[1], &[(0, Some(120))], look, 60);
            assert_eq!(marks.ranges_of_look(&[1]).starts, [0, 0, 0], "after {what}");
            look_at(&mut marks, &[1], &[(0, Some(3))], look, 60);
            assert_eq!(start(&marks, 0), 3, "after {what}");
        }
    }

    #[test]
    fn what_was_found_out_at_great_cost_is_kept_for_longer() {
        let mut marks = fresh();
        look(&mut marks, &[(0, None)], 100, 50, 50);
        let known = marks.known(&[1]);
        let at = |seconds: i64| Look {
            last_position: 100,
            files: files(7, 8),
            xmin: 50,
            at: Time(seconds * 1_000_000),
        };
        let seen = |seconds, pages| Seen { firsts: vec![None], look: at(seconds), pages };
        assert!(marks.note(&known, &seen(5, 600_000)), "one minute for 600,000 pages");
        assert!(marks.note(&known, &seen(64, 3)));
        assert!(!marks.note(&known, &seen(65, 3)));
        assert!(marks.note(&known, &seen(66, 3)));
    }

    #[test]
    fn ranges_leave_no_priority_out() {
        let mut marks = Marks::default();
        for priority in [5, 4, -3, i32::MAX, i32::MIN] {
            marks.learn(1, priority);
        }
        let ranges = marks.ranges(&[2, 1], |mark| mark.start);
        assert_eq!(ranges.action_nos, [2, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(ranges.highest, [i32::MAX, i32::MAX, i32::MAX - 1, 5, 4, 3, -3, -4, i32::MIN]);
        assert_eq!(ranges.lowest, [i32::MIN, i32::MAX, 6, 5, 4, -2, -3, i32::MIN + 1, i32::MIN]);
    }

    #[test]
    fn of_many_priorities_the_last_granted_have_marks() {
        let mut marks = Marks::default();
        for priority in 0..100 {
            marks.learn(1, priority);
            marks.learn(1, 1_000);
        }
        let priorities: Vec<i32> = marks.marks[&1].keys().copied().collect();
        assert_eq!(priorities, [93, 94, 95, 96, 97, 98, 99, 1_000]);
    }
}
