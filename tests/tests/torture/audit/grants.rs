//! Tokens and tries: each acknowledged grant is a try in the database, and each try was granted to a call that may have it.

use std::collections::{HashMap, HashSet};

use super::view::View;
use crate::book::Fate;

/// Times pass through the server as text: so much may be lost, in microseconds.
const ROUNDING: i64 = 2;

pub fn tokens(view: &View) -> Vec<String> {
    let mut seen = HashSet::new();
    let twice = view.performances.iter().filter(|performance| !seen.insert(performance.token));
    twice
        .map(|performance| format!("{} was granted twice, with {}", performance.token, performance.task))
        .collect()
}

pub fn are_there(view: &View) -> Vec<String> {
    let mut found = Vec::new();
    for performance in view.strict() {
        let (task, number, call) = (performance.task, performance.number, performance.call);
        match view.tries.get(&(task, number)) {
            None => {
                found.push(format!("try {number} of {task} was granted to {}, and is not there", call.name))
            }
            Some(one) if one.actor != call.name => {
                found.push(format!(
                    "try {number} of {task} was granted to {} and to {}",
                    call.name, one.actor
                ));
            }
            Some(one) if one.started + ROUNDING < call.sent || one.started > call.received + ROUNDING => {
                found.push(format!(
                    "try {number} of {task} began at {}, outside of {}",
                    one.started, call.name
                ));
            }
            Some(_) => {}
        }
    }
    found
}

pub fn are_known(view: &View) -> Vec<String> {
    let mut told: HashMap<&str, HashSet<&str>> = HashMap::new();
    for performance in &view.performances {
        told.entry(performance.call.name.as_str()).or_default().insert(performance.task);
    }
    let mut found = Vec::new();
    for one in &view.state.tries {
        let (task, number, actor) = (&one.task, one.number, one.actor.as_str());
        match view.by_name.get(actor) {
            None => found.push(format!("try {number} of {task} was granted to {actor}, which is no call")),
            Some(call) if call.fate == Fate::Refused => {
                found.push(format!("try {number} of {task} was granted to {actor}, which was refused"));
            }
            Some(call) if call.fate == Fate::Done => {
                if !told.get(actor).is_some_and(|tasks| tasks.contains(task.as_str())) {
                    found.push(format!("try {number} of {task} was granted to {actor}, which was not told"));
                }
            }
            Some(_) => {}
        }
    }
    found
}

/// Tries are counted one by one, and are not more than allowed.
pub fn tries(view: &View) -> Vec<String> {
    let mut counted: HashMap<&str, i64> = HashMap::new();
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for one in view.state.tries.iter().filter(|one| view.is_strict(&one.task)) {
        *counted.entry(&one.task).or_default() += 1;
        if !seen.insert((&one.task, one.number)) {
            found.push(format!("try {} of {} was granted twice", one.number, one.task));
        }
    }
    for task in view.state.tasks.values().filter(|task| view.is_strict(&task.id)) {
        let tries = counted.get(task.id.as_str()).copied().unwrap_or_default();
        if tries != task.tries {
            found.push(format!("{} has {tries} tries and counts {}", task.id, task.tries));
        }
        let most = view.specs.get(task.id.as_str()).and_then(|spec| spec.max_tries);
        if most.is_some_and(|most| tries > i64::from(most)) {
            found.push(format!("{} was tried {tries} times", task.id));
        }
    }
    // A limit on what the ledger knows, whatever the database says.
    let mut known: HashMap<(&str, i32), &str> = HashMap::new();
    for performance in view.strict() {
        if let Some(other) = known.insert((performance.task, performance.number), &performance.call.name) {
            let (task, number) = (performance.task, performance.number);
            found.push(format!(
                "try {number} of {task} was granted to {other} and to {}",
                performance.call.name
            ));
        }
        let spec = view.specs.get(performance.task);
        if spec.is_some_and(|spec| spec.spontaneous) {
            found.push(format!("{} was granted, and is spontaneous", performance.task));
        }
    }
    found
}
