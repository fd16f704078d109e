//! Every interleaving, with all clauses and without each of them.

use super::circle::{self, Circle};
use super::{NEEDED, Suspend};
use crate::check::{all_hold, each_is_needed};

#[test]
fn a_suspended_task_goes_on_when_what_it_waits_for_has_ended_and_not_before() {
    all_hold(Suspend::all(None));
}

#[test]
fn each_clause_is_needed() {
    each_is_needed(NEEDED.map(|clause| (clause, None)), |clause| Suspend::all(Some(clause)));
}

#[test]
fn suspensions_close_no_cycle() {
    all_hold(Circle::all(None));
}

#[test]
fn each_clause_is_needed_against_cycles() {
    each_is_needed(circle::NEEDED.map(|clause| (clause, None)), |clause| Circle::all(Some(clause)));
}
