//! Tasks for which some of their dependencies suffice (`num_required`), when they or what they depend on starts over.
//!
//! **What counts** are the dependencies that no suspension has added, as they are stored. What a suspension has added counts for that
//! only. What the task went on without ([`Counts::Dropped`]) is no dependency any more, until the task itself starts over: then it has
//! all of them again.
//!
//! **What is gone.** A task that has been granted, or has completed, had as many as it needs. If fewer are met of those that are stored,
//! and others that it had are not stored any more, these were deleted or replaced, or their retention is over, for instance: so many
//! count as met. Any other task needs its number of what is left.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::edges::{Changed, Stored, Under, standing_of};
use crate::insert::{Waits, add_waits};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::settle::Lost;
use crate::store::dependency::Counts;
use crate::store::live::{self, Counter, Live, Place};
use crate::store::{blocked, positions, task};

/// What a settled task had of the dependencies that it needs some of, before anything of it is taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Had {
    /// How many it needs.
    pub(super) required: i32,
    /// Dependencies that are stored and that no suspension has added, those that it went on without included.
    stored: i32,
    /// So many that it had are gone.
    pub(super) gone: i32,
}

impl Had {
    /// Of so many of its dependencies it can do without.
    pub(super) fn spare(self) -> i32 {
        self.stored + self.gone - self.required
    }
}

/// Those that have been granted or have completed, with the number of dependencies that each had at its end.
static FREED: Statement<&[TaskNo], (TaskNo, i32)> = Statement::new(
    c"SELECT s.task_no, s.dependencies FROM taskq.settled s
       WHERE s.task_no = ANY ($1) AND (s.granted_at IS NOT NULL OR s.code = 'c')",
);

/// Whether dependencies count that a task has had and that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// As met.
    Counts,
    /// A reset takes them away: the task begins with what is left.
    IsNone,
}

/// What those of the tasks had for which some dependencies suffice. So many of each were `dropped` just now. The caller holds their
/// neighbours.
pub(super) fn had(task_nos: &[TaskNo], gone: Gone, dropped: &HashMap<TaskNo, i32>) -> HashMap<TaskNo, Had> {
    let required = task::with_num_required(task_nos);
    if required.is_empty() {
        return HashMap::new();
    }
    let some: Vec<TaskNo> = required.keys().copied().collect();
    let freed: HashMap<TaskNo, i32> = match gone {
        Gone::Counts => FREED.query(some.as_slice()).into_iter().collect(),
        Gone::IsNone => HashMap::new(),
    };
    let (mut stored, mut met): (HashMap<TaskNo, i32>, HashMap<TaskNo, i32>) = Default::default();
    let mut still_had = dropped.clone();
    standing_of(&some, |edge| {
        *still_had.entry(edge.run).or_default() += i32::from(edge.counts != Counts::Dropped);
        if !edge.suspending {
            *stored.entry(edge.run).or_default() += 1;
            *met.entry(edge.run).or_default() += i32::from(is_met(&edge));
        }
    });
    let of = |counts: &HashMap<TaskNo, i32>, task_no| counts.get(&task_no).copied().unwrap_or(0);
    required
        .into_iter()
        .map(|(task_no, required)| {
            let missing = (required - of(&met, task_no)).max(0);
            let gone = freed.get(&task_no).map_or(0, |all| (all - of(&still_had, task_no)).clamp(0, missing));
            (task_no, Had { required, stored: of(&stored, task_no), gone })
        })
        .collect()
}

/// Whether a dependency has counted as one that is met. A task keeps what it has counted of one that started over without it.
fn is_met(edge: &Stored) -> bool {
    match edge.counts {
        Counts::Dropped | Counts::KeptAsLost => false,
        Counts::KeptAsMet | Counts::KeptAsFailed => true,
        Counts::ForItsWait => {
            edge.outcome.is_some_and(|outcome| Lost::of(edge.after, edge.first_condition, outcome).is_none())
        }
    }
}

/// Whether it has counted as a failure.
fn has_counted_as_failed(edge: &Stored) -> bool {
    match edge.counts {
        Counts::ForItsWait => edge.outcome.is_some_and(|outcome| outcome.is_abort()),
        counts => counts.has_kept_failure(edge.condition),
    }
}

/// What a task that had enough has, now that some of its dependencies start over.
#[derive(Default)]
struct Has {
    /// So many are met as before, or are waited for already.
    met: i32,
    /// Those that start over: the task after which; whether it was met; whether it has counted as a failure.
    over: Vec<(TaskNo, bool, bool)>,
}

/// Looks again at tasks that have been freed, and at suspended ones, which had been before: some of their dependencies start over. A
/// task that has enough without these goes on without them. Otherwise it waits for as many as are missing.
///
/// The rows are the call's. What it reads of dependencies that have ended does not change: such a dependency starts over, and is the
/// call's, or it takes the guard of the graph to come back.
pub(super) fn look_again(
    rows: &[&Live],
    starting_over: &HashSet<TaskNo>,
    required: &HashMap<TaskNo, i32>,
    now: Time,
) {
    let mut all = has_each(rows, starting_over);
    let mut changed = Changed::default();
    let mut recounted: BTreeMap<TaskNo, Waits> = BTreeMap::new();
    let mut waiting: Vec<(&Live, blocked::New)> = Vec::new();
    for row in rows {
        let has = all.remove(&row.task_no).unwrap_or_default();
        let were_met = has.over.iter().filter(|(_, met, _)| *met).count() as i32;
        let required = required.get(&row.task_no).copied().unwrap_or(0);
        // What is missing beyond these is gone, and was met.
        let missing = (required - has.met).min(were_met);
        let failed: i32 = has.over.iter().map(|(.., failed)| i32::from(*failed)).sum();
        let suspended = row.counter();
        // Ends of others of its dependencies may be on their way to its last wait.
        let wait_no = suspended.map_or_else(positions::new_wait, |counter| counter.wait_no);
        // A suspended task waits for all of its wait: for those that it had, and for no others.
        let is_awaited = |met: bool| missing > 0 && (met || suspended.is_none());
        let mut awaited = 0;
        for (after, met, _) in &has.over {
            if is_awaited(*met) {
                awaited += 1;
                changed.wait(*after, row.task_no, wait_no, Under::First);
            } else {
                changed.count_no_more(*after, row.task_no, Counts::Dropped);
            }
        }
        if missing > 0 && suspended.is_none() {
            let (remaining, spare) = (missing, awaited - missing);
            let counter = Counter { remaining, spare, not_before: own_time(row), wait_no, since: None };
            let (failures, dependencies, tries) = (row.failures - failed, row.dependencies, row.tries);
            let new = blocked::New::of(row.task_no, None, counter);
            waiting.push((row, blocked::New { failures, dependencies, tries, ..new }));
        } else {
            let all = awaited - has.over.len() as i32;
            let wait = Waits { unsettled: awaited, all, failed: -failed, lost: 0 };
            recounted.insert(row.task_no, wait);
        }
    }
    changed.store();
    live::remove(waiting.iter().map(|(row, _)| *row));
    blocked::insert(waiting.into_iter().map(|(_, new)| new));
    add_waits(&recounted, &rows.iter().map(|row| (row.task_no, (*row).clone())).collect(), now);
}

/// What each of the tasks has.
fn has_each(rows: &[&Live], starting_over: &HashSet<TaskNo>) -> HashMap<TaskNo, Has> {
    let waits: HashMap<TaskNo, _> =
        rows.iter().map(|row| (row.task_no, row.counter().map(|counter| counter.wait_no))).collect();
    let task_nos: Vec<TaskNo> = waits.keys().copied().collect();
    let mut all: HashMap<TaskNo, Has> = HashMap::new();
    standing_of(&task_nos, |edge| {
        if edge.suspending || edge.counts == Counts::Dropped {
            return;
        }
        let has = all.entry(edge.run).or_default();
        let is_of_this_wait = edge.counts == Counts::ForItsWait && waits[&edge.run] == Some(edge.wait_no);
        let starts_over = starting_over.contains(&edge.after);
        if starts_over && !is_of_this_wait {
            has.over.push((edge.after, is_met(&edge), has_counted_as_failed(&edge)));
        } else {
            // What is of this wait is awaited, unless it has ended and does not start over: then it counts if it was met. Under
            // another condition it is what a suspension waits for.
            let is_open = starts_over || edge.outcome.is_none();
            let is_awaited = is_of_this_wait && is_open && edge.condition == edge.first_condition;
            has.met += i32::from(is_awaited || (!starts_over && is_met(&edge)));
        }
    });
    all
}

/// The time before which a task is not to be granted, whatever it waits for.
fn own_time(row: &Live) -> Option<Time> {
    match row.place {
        Place::Scheduled { due, held_back: false } => Some(due),
        _ => None,
    }
}
