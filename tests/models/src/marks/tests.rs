//! Every interleaving, with all clauses and without each of them.

use super::{Clause, Marks, NEEDED};
use crate::check::{never, reaches};

#[test]
fn no_entry_is_missed() {
    let states = never(&Marks::new(None)).unwrap_or_else(|failure| panic!("{failure}"));
    println!("marks: {states} states");
    assert!(states > 100_000, "only {states} states");
}

#[test]
fn each_clause_is_needed() {
    for clause in NEEDED {
        let Err(failure) = never(&Marks::new(Some(clause))) else { panic!("{clause:?} can go") };
        println!("marks without {clause:?}: {failure}");
    }
}

/// Whether marks move while others have ids.
fn moves(without: Option<Clause>) -> bool {
    let marks = Marks { tells: true, writers: vec![1, 1], calls: 2, granted_to_others: 0, without };
    reaches(&marks, |state| state.moved_beside_others)
}

#[test]
fn a_bound_that_is_kept_moves_marks_beside_open_transactions() {
    assert!(moves(None));
    assert!(!moves(Some(Clause::BoundIsKept)));
}

/// The snapshots of a backend are never older than those before: a look is made with the latest one, and the
/// lowest id that runs does not fall. The clause holds the proof together should that ever change.
#[test]
fn snapshots_do_not_go_back() {
    let marks = Marks { granted_to_others: 0, ..Marks::new(Some(Clause::NoOlderSnapshot)) };
    never(&marks).unwrap_or_else(|failure| panic!("{failure}"));
}
