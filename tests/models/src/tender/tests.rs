//! Every interleaving, with all clauses and without each of them.

use super::{Clause, NEEDED, Tender};
use crate::check::{all_hold, each_is_needed};

#[test]
fn what_is_due_is_done_in_time() {
    all_hold(Tender::all(None));
}

/// The call that has started a process looks again within a second, whatever becomes of the process; or it ends before, and wakes
/// another call since it knows of something due. So the others would hear of it anyway. That they look again themselves costs
/// little, and does not ask how the lock came to be taken.
#[test]
fn looking_again_beside_a_start_is_for_safety_only() {
    all_hold(Tender::all(Some(Clause::LooksAgainBesideStart)));
}

#[test]
#[ignore = "long"]
fn each_clause_is_needed() {
    let needed = NEEDED.map(|(clause, property)| (clause, Some(property)));
    each_is_needed(needed, |clause| Tender::all(Some(clause)));
}
