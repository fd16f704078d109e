//! Of one task, one merge key, one action or one group no more are performed at once than may be.
//!
//! A performance surely lasts from the moment its holder was told of it until its deadline, or until a client sent what
//! may end it. A grant is one too many if those that surely lasted for the whole of its call leave no room for it.

use std::collections::HashMap;

use super::view::{Performance, View};
use crate::book::{Deed, Fate, Time};

pub fn at_most_at_once(view: &View) -> Vec<String> {
    let mut kinds: HashMap<String, Vec<&Performance>> = HashMap::new();
    for performance in view.performances.iter().filter(|performance| !performance.task.contains('@')) {
        for kind in kinds_of(view, performance) {
            kinds.entry(kind).or_default().push(performance);
        }
    }
    let settings = Settings::new(view);
    let mut found = Vec::new();
    for (kind, mut performances) in kinds {
        performances.sort_by_key(|performance| performance.call.sent);
        let mut lasting: Vec<&Performance> = Vec::new();
        let mut calls =
            performances.chunk_by(|one, other| one.call.name == other.call.name).collect::<Vec<_>>();
        calls.sort_by_key(|performances| performances[0].call.sent);
        for granted in calls {
            let call = granted[0].call;
            lasting.retain(|performance| performance.sure_until >= call.sent);
            let others: Vec<&str> = lasting
                .iter()
                .filter(|other| other.call.received <= call.sent && other.sure_until >= call.received)
                .map(|other| other.call.name.as_str())
                .collect();
            let most = settings.most(&kind, call.sent, call.received);
            // A lease that is shorter than its call may have ended within it: all that is sure then is that there was one.
            let still = granted.iter().filter(|performance| performance.sure_until >= call.received).count();
            let count = (others.len() + still.max(1)) as i64;
            if count > most {
                let (name, count) = (&call.name, still.max(1));
                found.push(format!("{kind}: {name} was granted {count} beside {others:?}, {most} may be"));
            }
            lasting.extend(granted);
        }
    }
    found
}

/// What a performance counts for.
fn kinds_of(view: &View, performance: &Performance) -> Vec<String> {
    let mut kinds = vec![format!("task {}", performance.task)];
    // A task that was replaced may have another action, group and key.
    let spec = view.specs.get(performance.task).filter(|_| view.is_strict(performance.task));
    let Some(spec) = spec else { return kinds };
    if spec.action == "few" {
        kinds.push("action few".to_owned());
    }
    if let Some(key) = &spec.merge_key {
        kinds.push(format!("merge {} {key}", spec.action));
    }
    if let Some(group) = &spec.group {
        kinds.push(format!("group {group}"));
        if spec.action == "turns" {
            kinds.push(format!("turns {group}"));
        }
    }
    kinds
}

/// What the limits were, and when.
struct Settings<'a> {
    changes: HashMap<&'a str, Vec<Change>>,
}

struct Change {
    sent: Time,
    received: Time,
    most: i64,
    done: bool,
}

impl<'a> Settings<'a> {
    fn new(view: &View<'a>) -> Settings<'a> {
        let mut changes: HashMap<&str, Vec<Change>> = HashMap::new();
        for call in view.calls.iter().filter(|call| call.fate != Fate::Refused) {
            for deed in &call.deeds {
                if let Deed::Limit { of, most } = deed {
                    let done = call.fate == Fate::Done;
                    let change = Change { sent: call.sent, received: call.received, most: *most, done };
                    changes.entry(of).or_default().push(change);
                }
            }
        }
        changes.values_mut().for_each(|changes| changes.sort_by_key(|change| change.sent));
        Settings { changes }
    }

    /// The largest limit that may have been in force between two moments.
    fn most(&self, kind: &str, from: Time, to: Time) -> i64 {
        let name = if kind.starts_with("turns ") { "turns" } else { kind };
        if kind.starts_with("task ") || kind.starts_with("merge ") {
            return 1;
        }
        let mut most = i64::MAX;
        for change in self.changes.get(name).into_iter().flatten() {
            if change.sent > to {
                break;
            }
            let in_force = change.done && change.received <= from;
            most = if in_force || most == i64::MAX { change.most } else { most.max(change.most) };
        }
        most
    }
}
