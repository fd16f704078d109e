//! Nothing began before all that it waits for had ended as it should, and each end was counted once.

use std::collections::HashMap;

use super::view::View;
use crate::book::{Deed, Fate, On, Time};
use crate::state::Edge;

pub fn kept(view: &View) -> Vec<String> {
    let mut stored: HashMap<&str, Vec<&Edge>> = HashMap::new();
    for edge in &view.state.edges {
        stored.entry(&edge.run).or_default().push(edge);
    }
    let mut found = too_early(view);
    for task in view.state.tasks.values().filter(|task| view.is_strict(&task.id)) {
        let edges = stored.get(task.id.as_str()).map_or(&[][..], Vec::as_slice);
        let spec = view.specs.get(task.id.as_str());
        let asked = spec.into_iter().flat_map(|spec| &spec.after);
        for (after, on) in asked {
            if !edges.iter().any(|edge| edge.after == *after && edge.on == *on) {
                found.push(format!("{} does not wait for {after} any more", task.id));
            }
        }
        found.extend(
            edges
                .iter()
                .filter(|edge| !edge.settled)
                .map(|edge| format!("{} waits for {}", edge.run, edge.after)),
        );
        // One that was cancelled in the middle has not counted all.
        if task.tries == 0 && task.code != "completed" {
            continue;
        }
        for edge in edges {
            let code = view.task(&edge.after).map_or("gone", |after| &after.code);
            if !edge.on.met_by(code) {
                found.push(format!("{} ran, and {} is {code}", task.id, edge.after));
            }
        }
        let failures =
            edges.iter().filter(|edge| view.task(&edge.after).is_some_and(|after| after.code == "aborted"));
        let counts = (task.dependencies, task.signals, task.failures);
        let right = (edges.len() as i64, edges.len() as i64, failures.count() as i64);
        if counts != right {
            found.push(format!(
                "{} has counted {counts:?} dependencies, signals and failures, of {right:?}",
                task.id
            ));
        }
    }
    found
}

/// A dependency that was there before a grant, and had not ended when the grant had been told.
fn too_early(view: &View) -> Vec<String> {
    let mut added: HashMap<&str, Vec<(Time, &str, On)>> = HashMap::new();
    for call in view.calls.iter().filter(|call| call.fate == Fate::Done) {
        for deed in &call.deeds {
            if let Deed::Edge { after, run, on } = deed {
                added.entry(run).or_default().push((call.received, after, *on));
            }
        }
    }
    let mut found = Vec::new();
    for performance in view.strict() {
        let spec = view.specs.get(performance.task);
        let from_the_start =
            spec.into_iter().flat_map(|spec| &spec.after).map(|(after, on)| (after.as_str(), *on));
        let later = added.get(performance.task).into_iter().flatten();
        let later =
            later.filter(|(there, ..)| *there <= performance.call.sent).map(|(_, after, on)| (*after, *on));
        for (after, on) in from_the_start.chain(later) {
            let Some(before) = view.task(after) else { continue };
            let name = &performance.call.name;
            if before.settled.is_none_or(|settled| settled > performance.call.received) {
                found.push(format!("{name} was granted {} before {after} had ended", performance.task));
            } else if !on.met_by(&before.code) {
                found
                    .push(format!("{name} was granted {}, and {after} is {}", performance.task, before.code));
            }
        }
    }
    found
}
