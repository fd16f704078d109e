//! Each task has ended once, by the call that was told so or by one that may have done it, or for a reason that holds.

use std::collections::HashMap;

use super::view::View;
use crate::book::{Deed, Fate, On};
use crate::state::{Task, Try};

pub fn left_over(view: &View) -> Vec<String> {
    let open = view.state.tasks.values().filter(|task| task.code != "completed" && task.code != "aborted");
    let mut found: Vec<String> = open.map(|task| format!("{} is {}", task.id, task.code)).collect();
    let tries = view.state.tries.iter().filter(|one| one.ended.is_none());
    found.extend(tries.map(|one| format!("try {} of {} has not ended", one.number, one.task)));
    found
}

/// What a client was told about the end of a task is what the database says: so no other client was told another end.
pub fn are_there(view: &View) -> Vec<String> {
    let mut found = Vec::new();
    for return_ in view.returns().filter(|return_| return_.is_accepted() && view.is_strict(return_.task)) {
        let (task, name, code) = (return_.task, return_.call.name.as_str(), return_.outcome());
        let number = view.by_token.get(&return_.token).map(|place| view.performances[*place].number);
        let Some(one) = number.and_then(|number| view.tries.get(&(task, number))) else {
            found.push(format!("{name} has returned {task}, of which there is no such try"));
            continue;
        };
        let used_up = code == "pending" && one.outcome == "aborted";
        let by_it = one.status.as_deref() == Some(name) || used_up;
        if one.outcome != code && !used_up || !by_it {
            found.push(format!("{name} has returned {task} as {code}, but its try ended {}", told(one)));
        }
        if code != "pending" {
            let end = view.task(task).map(|task| (task.code.as_str(), task.status.as_deref()));
            if end
                .is_none_or(|(end, status)| end != code || status != Some(name) && return_.code != "pending")
            {
                found.push(format!("{name} has settled {task} as {code}, but it is {end:?}"));
            }
        }
    }
    found
}

fn told(one: &Try) -> String {
    format!("{} {:?}", one.outcome, one.status)
}

/// A client that waited for the end of a task was told the one that it has.
pub fn were_seen(view: &View) -> Vec<String> {
    let mut found = Vec::new();
    for call in view.calls.iter().filter(|call| call.fate == Fate::Done) {
        for deed in &call.deeds {
            let Deed::Seen { task, code } = deed else { continue };
            let end = view.task(task).map_or("gone", |task| task.code.as_str());
            if view.is_strict(task) && end != code {
                found.push(format!("{} was told that {task} is {code}, but it is {end}", call.name));
            }
        }
    }
    found
}

/// Each end in the database, of tries and of tasks, has a reason in the ledger.
pub fn are_known(view: &View) -> Vec<String> {
    let deadlines: HashMap<(&str, i32), usize> = view
        .performances
        .iter()
        .enumerate()
        .map(|(place, performance)| ((performance.task, performance.number), place))
        .collect();
    let mut found = Vec::new();
    for one in view.state.tries.iter().filter(|one| view.is_strict(&one.task)) {
        let performance =
            deadlines.get(&(one.task.as_str(), one.number)).map(|place| &view.performances[*place]);
        let problem = match one.outcome.as_str() {
            "timeout" => match (performance, one.ended) {
                (Some(performance), Some(ended)) if ended < performance.sure_until => {
                    Some("before its deadline".to_owned())
                }
                _ => None,
            },
            "cancelled" => because_of_a_cancel(view, &one.task, one.status.as_deref()),
            // The worker did not say why where the last try was used up.
            _ if one.outcome == "aborted"
                && one.status.as_deref().is_some_and(|status| status.starts_with("all ")) =>
            {
                None
            }
            _ => because_of_a_return(
                view,
                &one.task,
                one.status.as_deref(),
                performance.map(|performance| performance.token),
            ),
        };
        found.extend(
            problem
                .map(|problem| format!("try {} of {} ended {}: {problem}", one.number, one.task, told(one))),
        );
    }
    for task in view.state.tasks.values().filter(|task| view.is_strict(&task.id) && task.settled.is_some()) {
        found.extend(
            unexplained(view, task)
                .map(|problem| format!("{} is {} {:?}: {problem}", task.id, task.code, task.status)),
        );
    }
    found
}

/// Why a task's end cannot be right.
fn unexplained(view: &View, task: &Task) -> Option<String> {
    let spec = view.specs.get(task.id.as_str())?;
    let Some(status) = task.status.as_deref() else {
        return (!spec.spontaneous || task.code != "completed").then(|| "no status says why".to_owned());
    };
    if let Some(name) = quoted(status, "dependency \"").filter(|_| status.ends_with(" aborted")) {
        return (!lost(view, task, name, On::Completed))
            .then(|| "it has not lost that dependency".to_owned());
    }
    if let Some(name) = quoted(status, "skipped: dependency \"") {
        let as_told = match status.ends_with(" was skipped") {
            true => lost(view, task, name, On::Completed) && view.task(name).is_some_and(was_skipped),
            false => lost(view, task, name, On::Aborted),
        };
        return (!as_told).then(|| "that dependency was not lost".to_owned());
    }
    if status.starts_with("the deadline passed on try") || status.starts_with("all ") {
        let most = i64::from(spec.max_tries.unwrap_or(25));
        let tries = task
            .merged_into
            .as_deref()
            .and_then(|leader| view.task(leader))
            .map_or(task.tries, |leader| leader.tries.max(task.tries));
        return (tries < most).then(|| format!("only {} of {most} tries are used up", task.tries));
    }
    // A rider ends with its leader.
    let performer = task.merged_into.as_deref().unwrap_or(&task.id);
    because_of_a_return(view, performer, Some(status), None).and_then(|problem| {
        because_of_a_cancel(view, &task.id, Some(status))
            .and_then(|_| because_of_a_cancel(view, performer, Some(status)))
            .map(|other| format!("{problem}, {other}"))
    })
}

fn was_skipped(task: &Task) -> bool {
    task.status.as_deref().is_some_and(|status| status.starts_with("skipped: "))
}

fn quoted<'a>(status: &'a str, before: &str) -> Option<&'a str> {
    status.strip_prefix(before)?.split('"').next()
}

/// Whether the task waited for the other on this condition, and lost it.
fn lost(view: &View, task: &Task, after: &str, on: On) -> bool {
    let ended = view.task(after).map(|after| after.code.as_str());
    let spec = view.specs.get(task.id.as_str());
    let inserted = spec.is_some_and(|spec| spec.after.iter().any(|(id, its)| id == after && *its == on));
    // Added later, or with the children of another.
    let added =
        || view.state.edges.iter().any(|edge| edge.run == task.id && edge.after == after && edge.on == on);
    let wrong = if on == On::Completed { "aborted" } else { "completed" };
    ended == Some(wrong) && (inserted || added())
}

fn because_of_a_return(
    view: &View,
    task: &str,
    status: Option<&str>,
    token: Option<uuid::Uuid>,
) -> Option<String> {
    let Some(call) = status.and_then(|status| view.by_name.get(status)) else {
        return Some("by no call".to_owned());
    };
    let its = call.deeds.iter().filter_map(|deed| match deed {
        Deed::Return { task: its, token, got, .. } if its == task => Some((token, got)),
        _ => None,
    });
    let mut its = its.filter(|(used, _)| token.is_none_or(|token| token == **used)).peekable();
    if its.peek().is_none() {
        return Some("that call has not returned it, or with another token".to_owned());
    }
    match call.fate {
        Fate::Refused => Some("that call was refused".to_owned()),
        Fate::Done if its.all(|(_, got)| got.starts_with("TQ")) => Some("that return was refused".to_owned()),
        _ => None,
    }
}

fn because_of_a_cancel(view: &View, task: &str, status: Option<&str>) -> Option<String> {
    let Some(call) = status.and_then(|status| view.by_name.get(status)) else {
        return Some("cancelled by no call".to_owned());
    };
    let names = call.deeds.iter().any(|deed| matches!(deed, Deed::Cancel { task: its } if its == task));
    (call.fate == Fate::Refused || !names).then(|| "that call has not cancelled it".to_owned())
}

/// A token that was refused had been good for nothing before the refusal came.
pub fn refused_for_a_reason(view: &View) -> Vec<String> {
    let mut found = Vec::new();
    let refused =
        view.returns().filter(|return_| return_.call.fate == Fate::Done && return_.got.starts_with("TQ"));
    for return_ in refused.filter(|return_| view.is_strict(return_.task)) {
        let Some(place) = view.by_token.get(&return_.token) else { continue };
        let performance = &view.performances[*place];
        let Some(one) = view.tries.get(&(return_.task, performance.number)) else { continue };
        let name = &return_.call.name;
        if one.ended.is_none_or(|ended| ended > return_.call.received) {
            found.push(format!(
                "{name} was refused {}, whose try {} ended only later",
                return_.task, one.number
            ));
        }
        if return_.got != "TQ001" {
            found.push(format!("{name} was refused {} with {}, but it is there", return_.task, return_.got));
        }
    }
    found
}
