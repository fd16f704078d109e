//! Every task that was acknowledged is there, no other is, and what one call inserts comes as a whole.

use std::collections::{HashMap, HashSet};

use super::view::View;
use crate::book::{Call, Deed, Fate};

/// How the calls that were to insert a task went.
#[derive(Default)]
struct Asked {
    done: u32,
    lost: u32,
    said_to_be_there: bool,
}

pub fn inserted(view: &View) -> Vec<String> {
    let mut asked: HashMap<&str, Asked> = HashMap::new();
    for call in view.calls {
        for id in ids(call) {
            let asked = asked.entry(id).or_default();
            match call.fate {
                Fate::Done => asked.done += 1,
                Fate::Lost => asked.lost += 1,
                Fate::Refused => asked.said_to_be_there |= call.state == "TQ002",
            }
        }
    }
    let mut found = Vec::new();
    for (id, asked) in &asked {
        let there = view.task(id).is_some();
        if asked.done + asked.lost == 0 && there {
            found.push(format!("{id} is there, but every call that inserts it was refused"));
        }
        if !view.is_strict(id) {
            continue;
        }
        if (asked.done > 0 || asked.said_to_be_there) && !there {
            found.push(format!("{id} was inserted, and is gone"));
        }
        if asked.done > 1 {
            found.push(format!("{id} was inserted {} times", asked.done));
        }
    }
    let unknown = view.state.tasks.keys().filter(|id| !asked.contains_key(id.as_str()) && !id.contains('@'));
    found.extend(unknown.map(|id| format!("{id} is there, and no client has inserted it")));
    found
}

/// A call whose answer was lost has done all or nothing; so has one that returns a task and inserts others.
pub fn all_or_nothing(view: &View) -> Vec<String> {
    let traces: HashSet<&str> = view
        .state
        .tries
        .iter()
        .filter_map(|one| one.status.as_deref())
        .chain(view.state.tasks.values().filter_map(|task| task.status.as_deref()))
        .collect();
    // Tokens that a later call could still return: then an earlier one has done nothing.
    let mut accepted: HashMap<_, Vec<&Call>> = HashMap::new();
    for return_ in view.returns().filter(|return_| return_.is_accepted()) {
        accepted.entry(return_.token).or_default().push(return_.call);
    }
    let mut done_again: HashSet<&str> = HashSet::new();
    for call in view.calls.iter().filter(|call| call.fate == Fate::Done) {
        done_again.extend(ids(call));
    }
    let mut found = Vec::new();
    for call in view.calls.iter().filter(|call| call.fate == Fate::Lost) {
        let kept: Vec<&str> = ids(call).filter(|id| view.is_strict(id)).collect();
        let there = kept.iter().filter(|id| view.task(id).is_some()).count();
        if there != 0 && there != kept.len() {
            found.push(format!("{} has inserted {there} of {} tasks", call.name, kept.len()));
        }
        let tokens: Vec<_> = call
            .deeds
            .iter()
            .filter_map(|deed| match deed {
                Deed::Return { task, token, .. } => Some((task, token)),
                _ => None,
            })
            .collect();
        let left_a_trace = traces.contains(call.name.as_str());
        for (task, token) in &tokens {
            let later = accepted.get(token).into_iter().flatten().find(|later| later.sent > call.received);
            if let (true, Some(later)) = (left_a_trace, later) {
                found.push(format!(
                    "{} has left traces, and {} could return {task} after it",
                    call.name, later.name
                ));
            }
        }
        // Its own insertions tell what became of its return.
        let own = !kept.is_empty() && kept.iter().all(|id| !done_again.contains(id));
        let strict = tokens.iter().all(|(task, _)| view.is_strict(task));
        if own && strict && !tokens.is_empty() && left_a_trace && there == 0 {
            found.push(format!("{} has returned a task without inserting others", call.name));
        }
        if own && strict && !tokens.is_empty() && there > 0 && !twins(view, &kept, &traces) {
            found.push(format!("{} has inserted tasks without returning one", call.name));
        }
    }
    found
}

/// Whether one of the lost calls that insert the same tasks has left a trace.
fn twins(view: &View, kept: &[&str], traces: &HashSet<&str>) -> bool {
    let about = |call: &&Call| call.fate == Fate::Lost && ids(call).any(|id| id == kept[0]);
    view.calls.iter().filter(about).any(|call| traces.contains(call.name.as_str()))
}

fn ids(call: &Call) -> impl Iterator<Item = &str> {
    call.deeds.iter().filter_map(|deed| match deed {
        Deed::Insert(spec) => Some(spec.id.as_str()),
        _ => None,
    })
}
