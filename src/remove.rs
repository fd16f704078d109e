//! Tasks go, with their dependencies, and with what has nothing left to wait for.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::insert::{Waits, lock_for_change};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::settle::{fold, propagate, release_or_complete, store};
use crate::state::Outcome;
use crate::store::live::{self, Live, Place};
use crate::store::task::Traces;
use crate::store::{attempts, blocked, dependency, merge_key, progress, settled};
use crate::wake;

/// Deletes tasks whose live rows are locked, whatever their state, and those that lose their last dependency by it; how
/// many that were. What is left behind is tidied up once for all waves: a chain has as many as tasks.
pub(crate) fn delete_locked(wave: Vec<TaskNo>, rows: HashMap<TaskNo, Live>, now: Time) -> i64 {
    delete_beside(&HashSet::new(), wave, rows, now)
}

/// The same beside some that stay, whatever they have waited for. They lose their dependencies on what goes, and nothing
/// else: the caller places them anew.
pub(crate) fn delete_beside(
    staying: &HashSet<TaskNo>,
    mut wave: Vec<TaskNo>,
    mut rows: HashMap<TaskNo, Live>,
    now: Time,
) -> i64 {
    let mut traces = Traces::default();
    while !wave.is_empty() {
        check_for_interrupts();
        let outcomes = live::outcomes(&wave);
        remove(&wave, &rows, &mut traces);
        let left = edges_gone(&wave, &outcomes, staying, now);
        rows = left.iter().map(|row| (row.task_no, row.clone())).collect();
        wave = left.iter().map(|row| row.task_no).collect();
    }
    traces.tidy(now)
}

/// Removes the rows of one wave.
fn remove(wave: &[TaskNo], rows: &HashMap<TaskNo, Live>, traces: &mut Traces) {
    live::remove(rows.values());
    let holders: Vec<TaskNo> = rows.values().filter(|row| row.keyed).map(|row| row.task_no).collect();
    merge_key::given_back(&holders);
    let ends = settled::REMOVE
        .map(wave, |(task_no, _, code, _)| (task_no, Outcome::from_stored(code)))
        .into_iter()
        .collect();
    progress::forget(wave);
    attempts::forget(wave);
    live::lock_edges_of(wave);
    dependency::REMOVE_RUN.execute(wave);
    for task_no in wave {
        wake::settled(*task_no);
    }
    traces.by_removing(wave, &ends);
}

/// Takes the edges from deleted tasks away. Blocked dependents with nothing left to wait for are released,
/// or complete if spontaneous; those left without any dependency are returned, locked, to be deleted.
fn edges_gone(
    wave: &[TaskNo],
    outcomes: &HashMap<TaskNo, Outcome>,
    staying: &HashSet<TaskNo>,
    now: Time,
) -> Vec<Live> {
    let mut losses: BTreeMap<TaskNo, Waits> = BTreeMap::new();
    for (after, run) in dependency::REMOVE_AFTER.query(wave) {
        if staying.contains(&run) {
            continue;
        }
        let loss = losses.entry(run).or_default();
        loss.all += 1;
        match outcomes.get(&after) {
            None => loss.unsettled += 1,
            Some(outcome) => loss.failed += i32::from(*outcome == Outcome::Aborted),
        }
    }
    if losses.is_empty() {
        return Vec::new();
    }
    let dependents: Vec<TaskNo> = losses.keys().copied().collect();
    // A deleted task that had settled may have left a signal that nobody has counted yet. It is counted first: what is
    // taken away below was counted then. The counters are ours, so that nothing stays deferred.
    lock_for_change(&dependents);
    fold::of(&dependents, now);
    let blocked: Vec<Live> = lock_for_change(&dependents)
        .into_values()
        .filter(|row| matches!(row.place, Place::Blocked { .. }))
        .collect();

    let (mut orphans, mut free) = (Vec::new(), Vec::new());
    let mut lowered: BTreeMap<Waits, Vec<TaskNo>> = BTreeMap::new();
    for row in blocked {
        let loss = losses[&row.task_no];
        let Place::Blocked { remaining, .. } = row.place else { continue };
        // A dependency that settled and was then replaced, or whose retention is over, still counts.
        if row.dependencies <= loss.all {
            orphans.push(row);
        } else if remaining > loss.unsettled {
            lowered.entry(loss).or_default().push(row.task_no);
        } else {
            free.push(row);
        }
    }
    for (loss, task_nos) in lowered {
        blocked::LOWER.execute((task_nos, loss.unsettled, loss.all, loss.failed));
    }
    live::remove(&free);
    for row in &mut free {
        row.dependencies -= losses[&row.task_no].all;
        row.failures -= losses[&row.task_no].failed;
        if let Place::Blocked { not_before, .. } = row.place {
            row.place = Place::Blocked { remaining: 0, not_before };
        }
    }
    let endings = release_or_complete(free, now);
    let news = endings.iter().map(|e| (e.task_no, e.outcome)).collect();
    store(&endings, now);
    propagate(news, now);
    orphans
}
