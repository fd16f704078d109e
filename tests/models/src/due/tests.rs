//! Every interleaving, with all clauses and without each of them.

use super::{Due, NEEDED};
use crate::check::check;

#[test]
fn nobody_sleeps_beside_what_is_due_and_of_use_to_him() {
    for (name, due) in Due::all(None) {
        let states = check(&due).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        println!("due, {name}: {states} states");
    }
}

#[test]
fn each_clause_is_needed() {
    let mut can_go = Vec::new();
    for clause in NEEDED {
        let failure =
            Due::all(Some(clause)).into_iter().find_map(|(name, due)| Some((name, check(&due).err()?)));
        match failure {
            Some((name, failure)) => println!("due without {clause:?}, {name}: {failure}"),
            None => can_go.push(clause),
        }
    }
    assert_eq!(can_go, [], "these clauses can go");
}
