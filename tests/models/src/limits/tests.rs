//! Every interleaving, with all clauses and without each of them.

use super::{NEEDED, Slots};
use crate::check::{check, each_is_needed};

#[test]
fn no_limit_is_exceeded_and_no_slot_left_free() {
    for slots in Slots::all(None) {
        let states = check(&slots).unwrap_or_else(|failure| panic!("{slots:?}: {failure}"));
        println!("slots, {slots:?}: {states} states");
    }
}

#[test]
fn each_clause_is_needed() {
    let without = |clause| Slots::all(Some(clause)).into_iter().map(|slots| ("slots", slots)).collect();
    each_is_needed(NEEDED.map(|clause| (clause, None)), without);
}
