//! What is said of tasks that are to be suspended, and what the call inserts for it.

use pgrx::datum::Interval;

use crate::error::Result;
use crate::input::{AwaitedSpec, TaskSpec, check_interval};
use crate::insert::{OnConflict, Options, Report, Waits, insert, insert_reporting};
use crate::number::WaitNo;
use crate::pg::clock::Time;
use crate::settle::Lost;
use crate::store::live::{Counter, Live};
use crate::store::{numbers, task};

/// What a task is to wait for before it goes on.
#[derive(Clone, Debug)]
pub(crate) struct Suspension {
    /// A text for people, which is shown until the next one; `None`: the one before stays.
    pub(in crate::returns) status: Option<String>,
    /// Nor is it granted again before this is over.
    pub(in crate::returns) retry_after: Option<Interval>,
    /// The tasks that it waits for besides its children; signals among them may have to be inserted.
    pub(in crate::returns) awaited: Vec<AwaitedSpec>,
    /// Tasks that are inserted, and waited for.
    pub(in crate::returns) children: Vec<TaskSpec>,
    /// The children are not granted before this is over.
    pub(in crate::returns) delay_children: Option<Interval>,
    /// It is to wait no longer than this.
    pub(in crate::returns) wait_at_most: Option<Interval>,
}

impl Suspension {
    /// Checks what the types do not say.
    pub(in crate::returns) fn checked(self) -> Result<Self> {
        check_interval("wait_at_most", self.wait_at_most)?;
        Ok(self)
    }

    /// All that the call may insert for it.
    pub(in crate::returns) fn inserted(&self) -> impl Iterator<Item = &TaskSpec> {
        self.children.iter().chain(self.awaited.iter().filter_map(|one| one.signal.as_deref()))
    }
}

/// A task that is being suspended: where it stands in the call, the performance that has ended, and for what it waits.
pub(super) struct One<'a> {
    /// Its place in the call.
    pub(super) at: usize,
    /// Its row, which is removed.
    pub(super) live: Live,
    /// What is said of it.
    pub(super) how: &'a Suspension,
    /// What it waits for that it did not have before.
    pub(super) waits: Waits,
    /// The dependency that ends it, if one has.
    pub(super) lost: Option<Lost>,
}

impl One<'_> {
    /// When its wait is over at the latest; `None`: when all has ended.
    pub(super) fn until(&self, now: Time) -> Option<Time> {
        self.how.wait_at_most.map(|most| now.plus(most))
    }

    /// Before when it is not granted again; `None`: it may be at once.
    pub(super) fn not_before(&self, now: Time) -> Option<Time> {
        self.how.retry_after.map(|after| now.plus(after))
    }

    /// Its counter, with so many that remain.
    pub(super) fn counter(&self, remaining: i32, wait_no: WaitNo, now: Time) -> Counter {
        Counter { remaining, spare: 0, not_before: self.not_before(now), wait_no, since: Some(now) }
    }
}

/// Inserts the children of each, and returns their ids, without those that a unique key leaves out.
pub(super) fn insert_children(tasks: &[One], now: Time) -> Result<Vec<Vec<String>>> {
    let mut specs = Vec::new();
    for one in tasks {
        let due = one.how.delay_children.map(|delay| now.plus(delay));
        let delayed = |child: &TaskSpec| TaskSpec { not_before: child.not_before.max(due), ..child.clone() };
        specs.extend(one.how.children.iter().map(delayed));
    }
    let options = Options { on_conflict: OnConflict::Error, ignore_missing: false };
    let mut reports = insert_reporting(specs, options)?.into_iter();
    let of_one = |one: &One| {
        let children = reports.by_ref().take(one.how.children.len());
        children.filter(Report::is_inserted).map(|child| child.id).collect()
    };
    Ok(tasks.iter().map(of_one).collect())
}

/// Inserts the signals that are not there. Of two calls that insert the same one, the second finds that of the first,
/// if that commits.
pub(super) fn insert_signals(tasks: &[One]) -> Result<()> {
    let wanted = || tasks.iter().flat_map(|one| one.how.awaited.iter().map(move |awaited| (one, awaited)));
    let ids: Vec<&str> = wanted().filter(|(_, a)| a.signal.is_some()).map(|(_, a)| a.id.as_str()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let there = numbers::by_id(&ids);
    let groups = task::groups(&tasks.iter().map(|one| one.live.task_no).collect::<Vec<_>>());
    let specs = wanted()
        .filter(|(_, awaited)| !there.contains_key(&awaited.id))
        .filter_map(|(one, awaited)| {
            let mut spec = awaited.signal.as_deref()?.clone();
            spec.group = spec.group.or_else(|| groups.get(&one.live.task_no).cloned());
            Some(spec)
        })
        .collect();
    insert(specs, Options { on_conflict: OnConflict::Skip, ignore_missing: false })?;
    Ok(())
}
