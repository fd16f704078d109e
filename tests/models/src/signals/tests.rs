//! Every interleaving, with all clauses and without each of them.

use super::{NEEDED, SPARED, Signals};
use crate::check::{all_hold, each_is_needed};

#[test]
fn whatever_has_nothing_left_to_wait_for_is_free() {
    all_hold(Signals::all(None));
}

#[test]
#[ignore = "long"]
fn some_clauses_spare_a_round() {
    SPARED.into_iter().for_each(|clause| all_hold(Signals::all(Some(clause))));
}

#[test]
fn each_clause_is_needed() {
    each_is_needed(NEEDED.map(|clause| (clause, None)), |clause| Signals::all(Some(clause)));
}
