//! Every interleaving, with all clauses and without each of them.

use super::{Clause, NEEDED, Wake};
use crate::check::check;

#[test]
fn nobody_sleeps_while_there_is_a_task_for_him() {
    for (name, wake) in Wake::all(None) {
        let states = check(&wake).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        println!("wake, {name}: {states} states");
    }
}

/// Who finds fewer latches to set than there are tasks leaves a rest, and whoever takes a task wakes the next for it. To
/// pass over those who were woken has all be awake at once instead of one after the other.
#[test]
fn passing_over_who_was_woken_saves_time_only() {
    for (name, wake) in Wake::all(Some(Clause::PassOverWoken)) {
        check(&wake).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

#[test]
fn each_clause_is_needed() {
    let mut can_go = Vec::new();
    for clause in NEEDED {
        let failure =
            Wake::all(Some(clause)).into_iter().find_map(|(name, wake)| Some((name, check(&wake).err()?)));
        match failure {
            Some((name, failure)) => println!("wake without {clause:?}, {name}: {failure}"),
            None => can_go.push(clause),
        }
    }
    assert_eq!(can_go, [], "these clauses can go");
}
