//! Ends that come back: what had settled and starts over is waited for again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::edges::{Changed, Under};
use super::some_of_many;
use crate::insert::{Waits, add_waits, lock_for_change, next_wait};
use crate::locks;
use crate::number::{TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::settle::{Lost, fold};
use crate::state::Condition;
use crate::store::dependency::{self, Counts};
use crate::store::live::Live;
use crate::store::task;

/// The dependencies of others on these tasks: the two ends, the condition, for which wait, what it is to the one that waits, and whether a
/// suspension has added it.
pub(super) static DEPENDENTS: Statement<&[TaskNo], (TaskNo, TaskNo, i8, WaitNo, i8, bool)> = Statement::new(
    c"SELECT d.after_no, d.run_no, d.condition, d.wait_no, d.counts, d.suspending FROM taskq.dependency d WHERE d.after_no = ANY ($1)",
);

/// An end that a dependent has counted.
pub(super) struct Counted {
    /// What has ended.
    pub(super) after: TaskNo,
    /// The dependent.
    pub(super) run: TaskNo,
    wait_no: WaitNo,
    /// What the edge counts for.
    pub(super) counts: Counts,
    /// It is of a suspension.
    pub(super) suspending: bool,
    /// It counts as an abort.
    pub(super) failed: bool,
    /// It counts as one that ended the wrong way.
    pub(super) lost: bool,
}

/// What becomes of an end that a dependent has counted, when it is taken back.
enum Fate {
    /// What the dependent was suspended for, and has gone on since, is over; but the end that it has counted has not been. A failure
    /// is taken back.
    IsOver,
    /// The dependent is in progress: the dependency has done its work.
    Goes,
    /// Whether the dependent, which some of its dependencies suffice for, has enough without it, is to be asked.
    IsAsked,
    /// The dependent waits again.
    Waits(Under),
    /// The dependent is not live any more.
    None,
}

impl Counted {
    fn is_of_this_wait(&self, row: &Live) -> bool {
        row.counter().is_some_and(|counter| counter.wait_no == self.wait_no)
    }

    /// What becomes of it, by the row of the dependent.
    fn fate(&self, row: Option<&Live>, some_suffice: bool) -> Fate {
        let of_this_wait = row.is_some_and(|row| self.is_of_this_wait(row));
        if self.suspending && !of_this_wait {
            return Fate::IsOver;
        }
        let Some(row) = row else { return Fate::None };
        if row.in_progress() {
            return Fate::Goes;
        }
        let suspended = row.counter().is_some_and(|counter| counter.since.is_some());
        // One that is suspended had begun.
        let has_enough = row.counter().is_none() || suspended;
        if !self.suspending && has_enough && some_suffice && !of_this_wait {
            return Fate::IsAsked;
        }
        Fate::Waits(if suspended && of_this_wait { Under::ThatOfSuspension } else { Under::First })
    }
}

/// The dependencies of others on tasks that had settled.
pub(super) fn counted(task_nos: &[TaskNo], others: &HashSet<TaskNo>) -> Vec<Counted> {
    // Both are held, live or settled: no dependency on one of them can be added meanwhile.
    let outcomes = locks::outcomes(task_nos);
    DEPENDENTS
        .map(task_nos, |(after, run, condition, wait_no, counts, suspending)| {
            let outcome = *outcomes.get(&after)?;
            let condition = Condition::from_stored(condition);
            let counts = Counts::from_stored(counts);
            let (failed, lost) = match counts {
                Counts::ForItsWait => (outcome.is_abort(), Lost::of(after, condition, outcome).is_some()),
                // What it has counted is another end than this one.
                _ => (counts.has_kept_failure(condition), counts == Counts::KeptAsLost),
            };
            Some(Counted { after, run, wait_no, counts, suspending, failed, lost })
        })
        .into_iter()
        .flatten()
        .filter(|edge| !others.contains(&edge.run) && edge.counts != Counts::Dropped)
        .collect()
}

/// What becomes of earlier ends of the tasks, which dependents have kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptEnds {
    /// The end that is taken back is another one.
    Stay,
    /// Dependents wait again, whichever end they have counted.
    AreTakenBack,
}

/// Makes live dependents wait again for those of the tasks that had settled, whose ends they had counted, unless they have
/// enough others. One that is in progress goes on, and the dependency is removed. An end that belongs to a suspension which is
/// over is not waited for again: it stops counting. The tasks come back with `others`, which look after themselves.
pub(crate) fn uncount(task_nos: &[TaskNo], others: &HashSet<TaskNo>, kept: KeptEnds, now: Time) {
    let mut edges = counted(task_nos, others);
    edges.retain(|edge| kept == KeptEnds::AreTakenBack || !edge.counts.is_kept());
    if edges.is_empty() {
        return;
    }
    let dependents: Vec<TaskNo> = edges.iter().map(|edge| edge.run).collect();
    // What they have not counted yet is counted first: the lock is ours, so that nothing stays deferred.
    lock_for_change(&dependents);
    fold::of(&dependents, now);
    let rows: HashMap<TaskNo, Live> = lock_for_change(&dependents);
    let some_suffice = task::with_num_required(&dependents);
    let mut waits: BTreeMap<TaskNo, Waits> = BTreeMap::new();
    let mut of_those_in_progress = Vec::new();
    let mut changed = Changed::default();
    let mut again: BTreeSet<TaskNo> = BTreeSet::new();
    for edge in edges {
        let row = rows.get(&edge.run);
        let some_suffice = some_suffice.contains_key(&edge.run);
        match edge.fate(row, some_suffice) {
            Fate::IsOver => {
                waits.entry(edge.run).or_default().failed -= i32::from(edge.failed);
                changed.count_no_more(edge.after, edge.run, Counts::KeptAsMet);
            }
            // What it counted, it counted.
            Fate::Goes => of_those_in_progress.push((edge.after, edge.run)),
            Fate::IsAsked => {
                again.insert(edge.run);
            }
            Fate::Waits(under) => {
                let wait = waits.entry(edge.run).or_default();
                wait.unsettled += 1;
                wait.failed -= i32::from(edge.failed);
                wait.lost -= i32::from(edge.lost);
                changed.wait(edge.after, edge.run, next_wait(row), under);
            }
            Fate::None => {}
        }
    }
    changed.store();
    add_waits(&waits, &rows, now);
    if !again.is_empty() {
        // As they are by now.
        let failed = |run: &TaskNo| waits.get(run).map_or(0, |wait| wait.failed);
        let again: Vec<Live> = again
            .iter()
            .map(|run| Live { failures: rows[run].failures + failed(run), ..rows[run].clone() })
            .collect();
        let again: Vec<&Live> = again.iter().collect();
        let starting_over: HashSet<TaskNo> = task_nos.iter().copied().collect();
        some_of_many::look_again(&again, &starting_over, &some_suffice, now);
    }
    if !of_those_in_progress.is_empty() {
        locks::lock_edges(&of_those_in_progress);
        dependency::REMOVE.execute(of_those_in_progress.into_iter().unzip::<_, _, Vec<_>, Vec<_>>());
    }
}
