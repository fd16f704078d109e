//! Every interleaving, with all clauses and without each of them.

use super::{Clause, NEEDED, Wake};
use crate::check::{all_hold, each_is_needed};

#[test]
fn no_call_sleeps_while_there_is_a_task_for_it() {
    all_hold(Wake::all(None));
}

/// A backend that finds fewer latches to set than there are tasks leaves a rest. Each call that takes a task wakes the
/// next one for it. Because those that were woken already are passed over, all are awake at once instead of one after
/// the other.
#[test]
fn to_pass_over_calls_that_were_woken_already_only_saves_time() {
    all_hold(Wake::all(Some(Clause::PassOverWoken)));
}

#[test]
fn each_clause_is_needed() {
    each_is_needed(NEEDED.map(|clause| (clause, None)), |clause| Wake::all(Some(clause)));
}
