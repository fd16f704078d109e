//! Every interleaving, with all clauses and without each of them.

use super::{Clause, NEEDED, Wake};
use crate::check::check;

#[test]
fn no_call_sleeps_while_there_is_a_task_for_it() {
    for (name, wake) in Wake::all(None) {
        let states = check(&wake).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        println!("wake, {name}: {states} states");
    }
}

/// A backend that finds fewer latches to set than there are tasks leaves a rest. Each call that takes a task wakes the
/// next one for it. Because those that were woken already are passed over, all are awake at once instead of one after
/// the other.
#[test]
fn to_pass_over_calls_that_were_woken_already_only_saves_time() {
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
