//! A token is good only until the next one is granted.

use std::collections::HashMap;

use super::view::View;

pub fn stale_tokens(view: &View) -> Vec<String> {
    let mut of_task: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, performance) in view.performances.iter().enumerate() {
        of_task.entry(performance.task).or_default().push(place);
    }
    let mut found = Vec::new();
    for return_ in view.returns().filter(|return_| return_.is_accepted()) {
        let name = &return_.call.name;
        let Some(place) = view.by_token.get(&return_.token) else {
            found.push(format!(
                "{name} has returned {} with a token that no client was granted",
                return_.task
            ));
            continue;
        };
        let ours = &view.performances[*place];
        if ours.task != return_.task {
            found.push(format!("{name} has returned {} with the token of {}", return_.task, ours.task));
        }
        let later = of_task[ours.task]
            .iter()
            .map(|place| &view.performances[*place])
            .find(|other| other.call.sent >= ours.call.received && other.call.received <= return_.call.sent);
        if let Some(later) = later {
            found.push(format!(
                "{name} has returned {} with the token of {}, after {} was granted it",
                return_.task, ours.call.name, later.call.name
            ));
        }
    }
    // Nor does a token settle two ends.
    let mut settled: HashMap<_, &str> = HashMap::new();
    for return_ in view.returns().filter(|return_| return_.is_accepted()) {
        if let Some(other) = settled.insert(return_.token, &return_.call.name) {
            found.push(format!(
                "{other} and {} have returned {} with one token",
                return_.call.name, return_.task
            ));
        }
    }
    found
}
