//! Counting down the tasks that wait.
//!
//! **No signaller ever waits for another.** It locks the counters it needs with SKIP LOCKED, in the order
//! of task numbers; for a counter that somebody else holds it appends a row to `signal` instead. Those
//! rows are folded into the counter later (see [`super::fold`]), by a transaction that has locked the
//! counter *first* and then deletes them with a newer snapshot: whichever of the two commits first, each
//! signal is counted by exactly one transaction, the one that updates the counter and commits. That somebody does
//! as soon as it matters is the concern of [`super::commit`].

use std::collections::{BTreeMap, HashMap};

use super::store::Ending;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::state::{Cause, Outcome, Signal};
use crate::store::dependency;
use crate::store::live::{InBlocked, Live, Place};
use crate::store::numbers;
use crate::store::ready::{self, Freed};
use crate::store::touched::{self, Touch};

/// What a task that waits has to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Dependencies that ended as they should.
    pub(crate) satisfied: i32,
    /// Of these, how many aborted.
    pub(crate) failed: i32,
    /// Dependencies that ended the wrong way.
    pub(crate) lost: i32,
    /// The status that a lost dependency gives the task.
    pub(crate) lost_status: Option<String>,
}

/// Deltas by task number, in the order in which counters are locked.
pub(crate) type Deltas = BTreeMap<i64, Delta>;

/// What the news means for the tasks that wait for it.
pub(crate) fn deltas(news: &[(i64, Outcome)]) -> Deltas {
    let outcomes: HashMap<i64, Outcome> = news.iter().copied().collect();
    let task_nos: Vec<i64> = news.iter().map(|(task_no, _)| *task_no).collect();
    let mut edges = dependency::waiting_for(&task_nos);
    edges.sort_unstable_by_key(|(after, run, _)| (*run, *after));

    let mut deltas = Deltas::new();
    let mut lost = Vec::new();
    for (after, run, condition) in edges {
        let delta = deltas.entry(run).or_default();
        match condition.signal(outcomes[&after]) {
            Signal::Satisfied { failed } => {
                delta.satisfied += 1;
                delta.failed += i32::from(failed);
            }
            Signal::Lost => {
                if delta.lost == 0 {
                    lost.push((run, after, condition));
                }
                delta.lost += 1;
                delta.failed += i32::from(outcomes[&after] == Outcome::Aborted);
            }
        }
    }
    let mut causes: Vec<i64> = lost.iter().map(|(_, after, _)| *after).collect();
    causes.dedup();
    let ids = numbers::ids(&causes);
    for (run, after, condition) in lost {
        let id = ids.get(&after).map_or("", String::as_str);
        deltas.entry(run).or_default().lost_status = Some(condition.lost_status(id));
    }
    deltas
}

static LOCK: Statement<&[i64], InBlocked> = Statement::new(
    c"SELECT b.task_no, b.tries, b.failures, b.dependencies, b.remaining, b.not_before
        FROM taskq.blocked b WHERE b.task_no = ANY ($1) ORDER BY b.task_no FOR UPDATE SKIP LOCKED",
);
/// Which of the tasks have a counter.
static STILL_BLOCKED: Statement<&[i64], i64> =
    Statement::new(c"SELECT b.task_no FROM taskq.blocked b WHERE b.task_no = ANY ($1)");
static APPEND: Statement<(&[i64], &[i32], &[i32], &[i32], &[&str])> = Statement::new(
    c"INSERT INTO taskq.signal (run_no, satisfied, failed, lost, lost_status)
      SELECT * FROM unnest($1, $2, $3, $4, $5)",
);
static COUNT_DOWN: Statement<(&[i64], i32, i32)> = Statement::new(
    c"UPDATE taskq.blocked b SET remaining = b.remaining - $2, failures = b.failures + $3
       WHERE b.task_no = ANY ($1)",
);
static REMOVE: Statement<&[i64]> = Statement::new(c"DELETE FROM taskq.blocked b WHERE b.task_no = ANY ($1)");
static SPONTANEOUS: Statement<&[i64], i64> =
    Statement::new(c"SELECT t.task_no FROM taskq.task t WHERE t.task_no = ANY ($1) AND t.spontaneous");

/// Counts what can be counted now, defers the rest, and returns the tasks that end by it.
pub(crate) fn apply(deltas: Deltas, now: Time) -> Vec<Ending> {
    if deltas.is_empty() {
        return Vec::new();
    }
    let waiting: Vec<i64> = deltas.keys().copied().collect();
    let counters: Vec<Live> = LOCK.map(waiting.as_slice(), |InBlocked(counter)| counter);
    if counters.len() < waiting.len() {
        defer(&deltas, &counters);
    }
    count(&deltas, counters, now)
}

/// Appends the signals of tasks whose counters somebody else holds. A task that has no counter any more
/// (it was cancelled, or aborted by an earlier signal) needs none.
fn defer(deltas: &Deltas, locked: &[Live]) {
    let locked: std::collections::HashSet<i64> = locked.iter().map(|l| l.task_no).collect();
    let missing: Vec<i64> = deltas.keys().copied().filter(|n| !locked.contains(n)).collect();
    let busy: Vec<i64> = STILL_BLOCKED.query(missing);
    if busy.is_empty() {
        return;
    }
    let of = |value: fn(&Delta) -> i32| busy.iter().map(|n| value(&deltas[n])).collect::<Vec<_>>();
    APPEND.execute((
        busy.as_slice(),
        of(|d| d.satisfied),
        of(|d| d.failed),
        of(|d| d.lost),
        busy.iter().map(|n| deltas[n].lost_status.clone()).collect::<Vec<_>>(),
    ));
    touched::look_again(&busy, Touch::LeftSignal);
}

/// Counts down the locked counters. What reaches zero is released or, if spontaneous, completes; what has
/// lost a dependency aborts.
fn count(deltas: &Deltas, counters: Vec<Live>, now: Time) -> Vec<Ending> {
    let mut left: BTreeMap<(i32, i32), Vec<i64>> = BTreeMap::new();
    let (mut lost, mut done) = (Vec::new(), Vec::new());
    for mut counter in counters {
        let delta = &deltas[&counter.task_no];
        let Place::Blocked { remaining, not_before } = counter.place else { continue };
        let counted = delta.satisfied + delta.lost;
        if delta.lost == 0 && remaining > counted {
            left.entry((counted, delta.failed)).or_default().push(counter.task_no);
            continue;
        }
        counter.place = Place::Blocked { remaining: remaining - counted, not_before };
        counter.failures += delta.failed;
        if delta.lost > 0 { lost.push(counter) } else { done.push(counter) }
    }

    // Tasks that have the same to count, and most have, share a statement.
    for ((counted, failed), task_nos) in left {
        COUNT_DOWN.execute((task_nos.as_slice(), counted, failed));
        touched::look_again(&task_nos, Touch::Locked);
    }

    let over: Vec<i64> = lost.iter().chain(&done).map(|c| c.task_no).collect();
    if over.is_empty() {
        return Vec::new();
    }
    REMOVE.execute(over);
    let mut endings: Vec<Ending> = lost
        .iter()
        .map(|counter| {
            let status = deltas[&counter.task_no].lost_status.clone();
            Ending::abort(counter, Cause::Dependency, status)
        })
        .collect();
    endings.extend(release_or_complete(done, now));
    endings
}

/// Tasks with nothing left to wait for: the spontaneous ones complete, the others are released.
pub(crate) fn release_or_complete(done: Vec<Live>, now: Time) -> Vec<Ending> {
    if done.is_empty() {
        return Vec::new();
    }
    let task_nos: Vec<i64> = done.iter().map(|c| c.task_no).collect();
    let spontaneous: std::collections::HashSet<i64> = SPONTANEOUS.query(task_nos).into_iter().collect();
    let (complete, released): (Vec<Live>, Vec<Live>) =
        done.into_iter().partition(|c| spontaneous.contains(&c.task_no));
    ready::release(
        released
            .iter()
            .map(|c| Freed {
                task_no: c.task_no,
                tries: c.tries,
                failures: c.failures,
                dependencies: c.dependencies,
                not_before: match c.place {
                    Place::Blocked { not_before, .. } => not_before,
                    _ => None,
                },
            })
            .collect(),
        now,
    );
    complete
        .iter()
        .map(|counter| Ending {
            outcome: Outcome::Completed,
            ..Ending::abort(counter, Cause::Spontaneous, None)
        })
        .collect()
}
