//! What is stored of suspended tasks: counters, and the edges that they wait for.

use std::collections::{BTreeMap, HashMap};

use super::said::One;
use crate::insert::EdgeSet;
use crate::locks::{self, LockStrength};
use crate::number::{TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::returns::taken::Code;
use crate::settle::merge_keys;
use crate::settle::{Ending, Lost, settle};
use crate::state::Outcome;
use crate::store::dependency::{self, Edge};
use crate::store::freed::Freed;
use crate::store::live::{self, Place};
use crate::store::{blocked, expiry, numbers, progress, ready};

/// Moves the tasks to `blocked`, where they are found while the call goes on. The one that they count until then stands for the call.
pub(super) fn block(tasks: &[One], wait_no: WaitNo, now: Time) {
    blocked::insert(tasks.iter().map(|one| blocked::New {
        failures: one.live.failures,
        dependencies: one.live.dependencies,
        // The try that has ended does not count.
        tries: one.live.tries - 1,
        until: one.until(now),
        ..blocked::New::of(one.live.task_no, None, one.counter(1, wait_no, now))
    }));
}

/// The edges that tasks have, and whether they have gone on without.
static STORED: Statement<&[TaskNo], (TaskNo, TaskNo, bool)> = Statement::new(
    c"SELECT d.after_no, d.run_no, d.state = 'd' FROM taskq.dependency d WHERE d.run_no = ANY ($1)",
);

/// Stores the edges for this wait, and counts what has ended of those that are new.
///
/// One that a task has already is none of these. If it has ended, that was counted when it did, whatever the condition was; else a child of
/// the call has said so itself. One that the task has gone on without is new, and is the suspension's from now on.
pub(super) fn link(tasks: &mut [One], edges: &EdgeSet, outcomes: &HashMap<TaskNo, Outcome>, wait_no: WaitNo) {
    if edges.edges.is_empty() {
        return;
    }
    let runs: Vec<TaskNo> = tasks.iter().map(|one| one.live.task_no).collect();
    let stored = STORED.map(runs, |(after, run, is_dropped)| ((after, run), is_dropped));
    let stored: HashMap<(TaskNo, TaskNo), bool> = stored.into_iter().collect();
    let is_dropped = |edge: &&Edge| stored.get(&(edge.after, edge.run)).copied();
    let is_stored = |edge: &&Edge| is_dropped(edge) == Some(false);
    let (again, mut new): (Vec<&Edge>, Vec<&Edge>) = edges.edges.iter().partition(is_stored);
    let mut of_each: BTreeMap<TaskNo, &mut One> =
        tasks.iter_mut().map(|one| (one.live.task_no, one)).collect();
    for edge in &new {
        let Some(one) = of_each.get_mut(&edge.run) else { continue };
        one.waits.all += 1;
        let outcome = outcomes.get(&edge.after).copied();
        if let Some(lost) = one.waits.count(edge.after, edge.condition, outcome) {
            one.lost = Some(Lost::decides(one.lost, lost));
        }
    }
    let pairs = |edges: &[&Edge]| -> (Vec<TaskNo>, Vec<TaskNo>) {
        edges.iter().map(|edge| (edge.after, edge.run)).unzip()
    };
    if !again.is_empty() {
        // Of this wait from now on, should it be waited for once more.
        let (after, run) = pairs(&again);
        dependency::WAIT_AGAIN.execute((after, run, vec![wait_no; again.len()]));
    }
    if new.iter().any(|edge| is_dropped(edge).is_some()) {
        dependency::REMOVE_DROPPED.execute(pairs(&new));
    }
    new.sort_unstable_by_key(|edge| (edge.after, edge.run));
    dependency::insert(new.into_iter().map(|edge| (*edge, wait_no)), true);
}

/// Lets those wait that have to; those that have nothing to wait for go on at once, or abort.
///
/// The rows are the call's. Their counters have what others of the call have added: a child may signal any task.
pub(super) fn go_on_or_wait(tasks: &[One], now: Time) -> Vec<Code> {
    let (mut freed, mut endings, mut over, mut codes) = (vec![], vec![], vec![], vec![]);
    let rows =
        locks::lock(&tasks.iter().map(|one| one.live.task_no).collect::<Vec<_>>(), LockStrength::Update);
    for one in tasks {
        let row = rows.get(&one.live.task_no);
        // A child of the call may have ended it: one that is lost, and that it has to wait for.
        let aborts = one.lost.is_some() || row.is_none();
        codes.push((one.at, if aborts { Outcome::Aborted.name() } else { "pending" }));
        let Some(row) = row else { continue };
        let mut row = row.clone();
        let Place::Blocked(mut counter) = row.place else { continue };
        // Less the one that has stood for the call.
        counter.remaining += one.waits.unsettled - 1;
        row.place = Place::Blocked(counter);
        row.failures += one.waits.failed;
        row.dependencies += one.waits.all;
        if let Some(lost) = one.lost {
            let status = lost.status(numbers::ids(&[lost.after]).get(&lost.after).map_or("", String::as_str));
            endings.push(Ending::abort(&row, lost.cause(), Some(status)));
        } else if counter.remaining == 0 {
            freed.push(Freed { not_before: counter.not_before, ..row.freed() });
        } else {
            blocked::SET.execute((row.task_no, counter.remaining, row.failures, row.dependencies));
            continue;
        }
        over.push(row);
    }
    live::remove(&over);
    ready::release(freed, now);
    settle(endings, now);
    codes
}

/// What the performances leave: what was said of the tasks, and their merge keys, which come last in the order of locks. One that was
/// granted does not expire any more.
pub(super) fn leave(tasks: &[One]) {
    let (told, statuses): (Vec<TaskNo>, Vec<String>) =
        tasks.iter().filter_map(|one| Some((one.live.task_no, one.how.status.clone()?))).unzip();
    if !told.is_empty() {
        progress::SET_STATUS.execute((told, statuses));
    }
    expiry::forget(&tasks.iter().map(|one| one.live.task_no).collect::<Vec<_>>());
    merge_keys::given_back(tasks.iter().map(|one| &one.live));
}
