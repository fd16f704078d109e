//! Every interleaving, with all clauses and without each of them.

use super::{NEEDED, Slots};
use crate::check::check;

#[test]
fn no_limit_is_exceeded_and_no_slot_left_free() {
    for slots in Slots::all(None) {
        let states = check(&slots).unwrap_or_else(|failure| panic!("{slots:?}: {failure}"));
        println!("slots, {slots:?}: {states} states");
    }
}

#[test]
fn each_clause_is_needed() {
    let mut can_go = Vec::new();
    for clause in NEEDED {
        match Slots::all(Some(clause)).into_iter().find_map(|slots| check(&slots).err()) {
            Some(failure) => println!("slots without {clause:?}: {failure}"),
            None => can_go.push(clause),
        }
    }
    assert_eq!(can_go, [], "these clauses can go");
}
