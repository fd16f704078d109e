//! Every interleaving, with all clauses and without each of them.

use super::{NEEDED, SPARED, Signals};
use crate::check::check;

#[test]
fn whatever_has_nothing_left_to_wait_for_is_free() {
    for (name, signals) in Signals::all(None) {
        let states = check(&signals).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        println!("signals, {name}: {states} states");
    }
}

#[test]
#[ignore = "long"]
fn some_clauses_spare_a_round() {
    for clause in SPARED {
        for (name, signals) in Signals::all(Some(clause)) {
            check(&signals).unwrap_or_else(|failure| panic!("without {clause:?}, {name}: {failure}"));
        }
    }
}

#[test]
fn each_clause_is_needed() {
    let mut can_go = Vec::new();
    for clause in NEEDED {
        let failure =
            Signals::all(Some(clause)).into_iter().find_map(|(name, s)| Some((name, check(&s).err()?)));
        match failure {
            Some((name, failure)) => println!("signals without {clause:?}, {name}: {failure}"),
            None => can_go.push(clause),
        }
    }
    assert_eq!(can_go, [], "these clauses can go");
}
