//! A dependency starts over of which the task that had counted its end may do without.
//!
//! The task is placed anew by all of its dependencies, those that it had gone on without included. If those that have ended still
//! suffice, it stays where it is, and goes on without the others; if not, it waits for as many as are missing.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Renumbered;
use super::place::standing_of;
use crate::input::Wants;
use crate::insert::{Standing, Waits, add_waits};
use crate::number::{DROPPED, FIRST_WAIT, TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::session::transaction_number;
use crate::settle::{Ending, TOO_FEW, settle};
use crate::state::Cause;
use crate::store::blocked;
use crate::store::live::{self, Counter, Live, Place};

/// Looks again at tasks for which some of their dependencies suffice, and which nothing blocks: some of those start over. The rows are
/// the call's, and so are what they depend on.
pub(super) fn look_again(
    rows: &[&Live],
    starting_over: &HashSet<TaskNo>,
    required: &HashMap<TaskNo, i32>,
    now: Time,
) {
    let task_nos: Vec<TaskNo> = rows.iter().map(|row| row.task_no).collect();
    let mut edges: HashMap<TaskNo, Vec<(TaskNo, WaitNo, bool)>> = HashMap::new();
    let mut all: HashMap<TaskNo, Waits> = HashMap::new();
    standing_of(&task_nos, |run, condition, outcome, after, wait_no| {
        let outcome = outcome.filter(|_| !starting_over.contains(&after));
        let wait = all.entry(run).or_default();
        wait.all += i32::from(wait_no == DROPPED);
        wait.count(after, condition, outcome);
        edges.entry(run).or_default().push((after, wait_no, outcome.is_none()));
    });
    let (mut waiting, mut endings) = (Vec::new(), Vec::new());
    let mut renumbered = Renumbered::default();
    let mut recounted: BTreeMap<TaskNo, Waits> = BTreeMap::new();
    for row in rows {
        let mut wait = all.remove(&row.task_no).unwrap_or_default();
        wait.all += row.dependencies;
        let wants = Wants { num_required: required.get(&row.task_no).copied(), signal: false };
        let standing = wait.standing(wants);
        let waits = matches!(standing, Standing::Waiting { .. });
        let next = if waits { transaction_number() } else { FIRST_WAIT };
        for (after, wait_no, open) in edges.remove(&row.task_no).unwrap_or_default() {
            // Without the open ones it goes on; what has ended of those that it had gone on without it counts now.
            let number = if open && !waits { DROPPED } else { next };
            if open || wait_no == DROPPED {
                renumbered.add(after, row.task_no, number);
            }
        }
        match standing {
            Standing::Waiting { remaining, spare } => {
                let counter =
                    Counter { remaining, spare, not_before: own_time(row), wait_no: next, since: None };
                let new = blocked::New::of(row.task_no, None, counter);
                let (failures, dependencies, tries) = (wait.failed, wait.all, row.tries);
                waiting.push((*row, blocked::New { failures, dependencies, tries, ..new }));
            }
            Standing::Free => {
                let (all, failed) =
                    (wait.all - wait.unsettled - row.dependencies, wait.failed - row.failures);
                recounted.insert(row.task_no, Waits { all, failed, ..Waits::default() });
            }
            Standing::Lost => endings.push(*row),
        }
    }
    renumbered.store();
    live::remove(waiting.iter().map(|(row, _)| *row).chain(endings.iter().copied()));
    blocked::insert(waiting.into_iter().map(|(_, new)| new));
    add_waits(&recounted, &rows.iter().map(|row| (row.task_no, (*row).clone())).collect(), now);
    let aborted = |row: &&Live| Ending::abort(row, Cause::Dependency, Some(TOO_FEW.to_owned()));
    settle(endings.iter().map(aborted).collect(), now);
}

/// The time before which a task is not to be granted, whatever it waits for.
fn own_time(row: &Live) -> Option<Time> {
    match row.place {
        Place::Scheduled { due, held_back: false } => Some(due),
        _ => None,
    }
}
