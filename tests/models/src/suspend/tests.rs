//! Every interleaving, with all clauses and without each of them.

use super::circle::{self, Circle};
use super::{NEEDED, Suspend};
use crate::check::check;

#[test]
fn a_suspended_task_goes_on_when_what_it_waits_for_has_ended_and_not_before() {
    for (name, suspend) in Suspend::all(None) {
        let states = check(&suspend).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        println!("suspend, {name}: {states} states");
    }
}

#[test]
fn each_clause_is_needed() {
    let mut can_go = Vec::new();
    for clause in NEEDED {
        let failure =
            Suspend::all(Some(clause)).into_iter().find_map(|(name, s)| Some((name, check(&s).err()?)));
        match failure {
            Some((name, failure)) => println!("suspend without {clause:?}, {name}: {failure}"),
            None => can_go.push(clause),
        }
    }
    assert_eq!(can_go, [], "these clauses can go");
}

#[test]
fn suspensions_close_no_cycle() {
    for (name, circle) in Circle::all(None) {
        let states = check(&circle).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        println!("circle, {name}: {states} states");
    }
}

#[test]
fn each_clause_is_needed_against_cycles() {
    let mut can_go = Vec::new();
    for clause in circle::NEEDED {
        let failure =
            Circle::all(Some(clause)).into_iter().find_map(|(name, c)| Some((name, check(&c).err()?)));
        match failure {
            Some((name, failure)) => println!("circle without {clause:?}, {name}: {failure}"),
            None => can_go.push(clause),
        }
    }
    assert_eq!(can_go, [], "these clauses can go");
}
