//! Every interleaving, with all clauses and without each of them.

use super::{Clause, NEEDED, Tender};
use crate::check::check;

#[test]
fn what_is_due_is_done_in_time() {
    for (name, tender) in Tender::all(None) {
        let states = check(&tender).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        println!("tender, {name}: {states} states");
    }
}

/// The call that has started a process looks again within a second, whatever becomes of the process; or it ends before, and wakes
/// another call since it knows of something due. So the others would hear of it anyway. That they look again themselves costs
/// little, and does not ask how the lock came to be taken.
#[test]
fn looking_again_beside_a_start_is_for_safety_only() {
    for (name, tender) in Tender::all(Some(Clause::LooksAgainBesideStart)) {
        check(&tender).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

#[test]
#[ignore = "long"]
fn each_clause_is_needed() {
    let mut can_go = Vec::new();
    for (clause, property) in NEEDED {
        let mut failures = Tender::all(Some(clause))
            .into_iter()
            .filter_map(|(name, tender)| Some((name, check(&tender).err()?)));
        match failures.find(|(_, failure)| failure.what == property) {
            Some((name, failure)) => println!("tender without {clause:?}, {name}: {failure}"),
            None => can_go.push(clause),
        }
    }
    assert_eq!(can_go, [], "these clauses can go");
}
