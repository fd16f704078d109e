//! Where each new task belongs: blocked, scheduled, ready, or settled from the start.

use std::collections::{BTreeSet, HashMap};

use super::edges::EdgeSet;
use super::new::NewTask;
use super::stored::Stored;
use super::waits::{Standing as Stands, Waits};
use crate::number::{FIRST_WAIT, TaskNo};
use crate::pg::clock::Time;
use crate::settle::{Ending, Lost, settle};
use crate::state::{Cause, Outcome};
use crate::store::freed::Freed;
use crate::store::live::Counter;
use crate::store::notify::notify_ready;
use crate::store::{blocked, dependency, expiry, numbers, ready};
use crate::wake;

/// What the dependencies of a new task amount to.
#[derive(Clone, Copy, Default)]
struct Standing {
    waits: Waits,
    lost: Option<Lost>,
}

/// Puts each of the new tasks where it belongs, then settles those that are settled from the start: lost
/// before they began, or spontaneous with nothing to wait for. Their dependents are signalled in the same
/// pass, as all counters are in place by then.
pub(super) fn place(tasks: &[NewTask], set: &EdgeSet, stored: &Stored, now: Time) {
    let standings = standings(set, stored);
    let (mut blocked, mut ready, mut scheduled, mut endings) = (vec![], vec![], vec![], vec![]);
    // Those for which some of their dependencies suffice, and that do not wait: what is open is dropped.
    let mut not_needed = Vec::new();
    for task in tasks {
        let standing = standings.get(&task.task_no).copied().unwrap_or_default();
        let waits = standing.waits;
        let mut freed = Freed {
            task_no: task.task_no,
            tries: 0,
            failures: waits.failed,
            dependencies: waits.all,
            not_before: None,
        };
        let stands = waits.standing(task.spec.wants());
        if let Stands::Waiting { remaining, spare } = stands {
            let counter = Counter { remaining, spare, not_before: None, wait_no: FIRST_WAIT, since: None };
            blocked.push(blocked::New {
                failures: waits.failed,
                dependencies: waits.all,
                ..blocked::New::of(task.task_no, Some(task.action_no), counter)
            });
            continue;
        }
        if waits.unsettled > 0 && task.spec.num_required.is_some() {
            not_needed.push(task.task_no);
            freed.dependencies -= waits.unsettled;
        }
        let lost = standing.lost.filter(|_| stands == Stands::Lost);
        if let Some(lost) = lost {
            endings.push(ending(freed, lost.cause(), waits, Some(lost_status(lost))));
        } else if let Some(due) = task.spec.not_before.filter(|due| *due > now) {
            scheduled.push((freed, due));
        } else if task.spec.spontaneous {
            endings.push(ending(freed, Cause::Spontaneous, waits, None));
        } else {
            ready.push((task, freed));
        }
    }
    if !not_needed.is_empty() {
        dependency::drop_open(not_needed);
    }
    let expires = |task: &NewTask| Some((task.task_no, task.spec.expires_at?));
    if tasks.iter().any(|task| task.spec.expires_at.is_some()) {
        // Of those that settle below as well: that removes it.
        expiry::insert(tasks.iter().filter_map(expires));
    }
    blocked::insert(blocked.into_iter());
    insert_ready(&ready);
    ready::schedule(scheduled.into_iter());
    settle(endings, now);
}

fn ending(freed: Freed, cause: Cause, waits: Waits, status: Option<String>) -> Ending {
    let outcome = match cause {
        Cause::Spontaneous => Outcome::Completed,
        Cause::Skipped => Outcome::Skipped,
        _ => Outcome::Aborted,
    };
    Ending {
        signals: (waits.all - waits.unsettled).min(freed.dependencies),
        ..Ending::of_freed(&freed, outcome, cause, status)
    }
}

fn lost_status(lost: Lost) -> String {
    lost.status(numbers::ids(&[lost.after]).get(&lost.after).map_or("", String::as_str))
}

/// Sums up the dependencies of each new task.
fn standings(set: &EdgeSet, stored: &Stored) -> HashMap<TaskNo, Standing> {
    let mut standings: HashMap<TaskNo, Standing> = HashMap::new();
    for edge in &set.edges {
        let standing = standings.entry(edge.run).or_default();
        standing.waits.all += 1;
        let outcome = stored.outcomes.get(&edge.after).copied();
        if let Some(lost) = standing.waits.count(edge.after, edge.condition, outcome) {
            standing.lost = Some(Lost::decides(standing.lost, lost));
        }
    }
    standings
}

fn insert_ready(ready: &[(&NewTask, Freed)]) {
    if ready.is_empty() {
        return;
    }
    for (task, _) in ready {
        wake::ready(task.action_no);
    }
    let notified: BTreeSet<i32> = ready.iter().filter(|(t, _)| t.notify).map(|(t, _)| t.action_no).collect();
    if !notified.is_empty() {
        notify_ready(&notified);
    }
    ready::insert_new(ready.iter().map(|(task, freed)| ready::New {
        task_no: task.task_no,
        action_no: task.action_no,
        gives_lanes: task.gives_lanes,
        spec: &task.spec,
        failures: freed.failures,
        dependencies: freed.dependencies,
    }));
}
