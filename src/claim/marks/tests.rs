//! The steps of the proof that no entry is missed.

use pgrx::pg_sys::Oid;

use super::kept::*;

use super::ranges::Ranges;
use crate::number::Position;
use crate::store::decided::Look;

/// What a look sees of the marks of action 1: the first grantable position of each priority.
fn look(marks: &mut Marks, firsts: &[(i32, Option<i64>)], last_position: i64, xmin: u64, next: u64) {
    look_at(
        marks,
        &[1],
        firsts,
        Look { last_position: Position(last_position), files: files(7, 8), xmin },
        next,
    );
}

fn look_at(marks: &mut Marks, actions: &[i32], firsts: &[(i32, Option<i64>)], look: Look, next: u64) {
    let known = marks.known(actions);
    let firsts =
        known.priorities.iter().map(|p| firsts.iter().find(|(q, _)| q == p).and_then(|f| f.1).map(Position));
    let seen = Seen { firsts: firsts.collect(), look, xmin_of_others: look.xmin };
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
    marks.marks[&1][&priority].start.0
}

fn numbers(ranges: &Ranges) -> Vec<i64> {
    ranges.starts.iter().map(|start| start.0).collect()
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
fn a_mark_moves_at_once_while_no_transaction_has_an_id() {
    let mut marks = fresh();
    look(&mut marks, &[(0, Some(90))], 100, 50, 50);
    assert_eq!(start(&marks, 0), 90);
    look(&mut marks, &[(0, None)], 110, 50, 51);
    assert_eq!(start(&marks, 0), 101, "50 was given to a transaction that may have taken position 101");
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
    let starts = |marks: &Marks| numbers(&marks.ranges_of_look(&[1]));
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
    let at = |last_position, xmin| Look { last_position: Position(last_position), files: files(7, 8), xmin };
    // 40 is open; what comes behind it is only known to have been seen.
    look_at(&mut marks, &[1, 2], &[(0, Some(90))], at(100, 40), 50);
    look_at(&mut marks, &[2], &[(0, Some(95))], at(110, 40), 55);
    let starts = numbers(&marks.ranges_of_look(&[1, 2]));
    assert_eq!(starts, [0, 0, 0, 0, 95, 0], "40 may have committed position 30 of action 1 meanwhile");
}

#[test]
fn marks_are_forgotten_when_positions_are_not_what_they_were() {
    let same = Look { last_position: Position(100), files: files(7, 8), xmin: 60 };
    for (what, look) in [
        ("TRUNCATE of the rows", Look { last_position: Position(200), files: files(6, 8), ..same }),
        ("RESTART of the sequence", Look { last_position: Position(200), files: files(7, 9), ..same }),
        ("setval", Look { last_position: Position(99), ..same }),
    ] {
        let mut marks = fresh();
        super::tests::look(&mut marks, &[(0, None)], 100, 50, 50);
        super::tests::look(&mut marks, &[(0, None)], 100, 51, 51);
        assert_eq!(start(&marks, 0), 101);
        look_at(&mut marks, &[1], &[(0, Some(120))], same, 60);
        assert_eq!(start(&marks, 0), 101, "nothing has changed");
        look_at(&mut marks, &[1], &[(0, Some(120))], look, 60);
        assert_eq!(numbers(&marks.ranges_of_look(&[1])), [0, 0, 0], "after {what}");
        look_at(&mut marks, &[1], &[(0, Some(3))], look, 60);
        assert_eq!(start(&marks, 0), 3, "after {what}");
    }
}

#[test]
fn a_further_walk_of_a_call_begins_where_the_one_before_has_seen_something() {
    let mut marks = fresh();
    marks.learn(1, 5);
    let mut ranges = marks.ranges_of_look(&[1]);
    ranges.go_on(1, Position(30));
    ranges.go_on(3, Position::END);
    ranges.go_on(1, Position(20));
    let left: Vec<_> = ranges.each().map(|s| (s.at, s.highest, s.start.0)).collect();
    assert_eq!(left, [(0, i32::MAX, 0), (1, 5, 30), (2, 4, 0), (4, -1, 0)]);
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

#[test]
fn what_is_found_has_a_mark_where_there_is_room() {
    let mut marks = Marks::default();
    marks.learn(1, 100);
    for priority in 0..100 {
        marks.find(1, priority);
        marks.find(1, 100);
    }
    let priorities: Vec<i32> = marks.marks[&1].keys().copied().collect();
    assert_eq!(priorities, [0, 1, 2, 3, 4, 5, 6, 100], "none that tasks were granted of gives way");
}
