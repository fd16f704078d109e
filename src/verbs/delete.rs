//! `delete_tasks`: tasks go with their dependencies, and with what has nothing left to wait for.

use std::collections::{BTreeMap, HashMap, HashSet};

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use super::filter::{Filter, Filters, on_ends, on_tasks};
use crate::error::{Refusal, Result};
use crate::insert::{Waits, lock_for_change};
use crate::pg::clock::{self, Time};
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Statement, sql};
use crate::rights::{self, Doing};
use crate::settle::{fold, propagate, release_or_complete, store};
use crate::state::Outcome;
use crate::store::ends::uncounted;
use crate::store::live::{self, Firmness, Idle, Live, Place};
use crate::store::order::restartable;
use crate::store::{attempts, merge_key, numbers, progress};
use crate::upkeep::retention::remove_tasks;
use crate::wake;

/// `taskq.delete_tasks(task_ids, actions, groups, status_like, causes, settled_since, settled_until, max_tasks) -> bigint`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_delete_tasks(
    task_ids: Option<Vec<Option<String>>>,
    actions: Option<Vec<Option<String>>>,
    groups: Option<Vec<Option<String>>>,
    status_like: Option<&str>,
    causes: Option<Vec<Option<String>>>,
    settled_since: Option<TimestampWithTimeZone>,
    settled_until: Option<TimestampWithTimeZone>,
    max_tasks: Option<i32>,
) -> i64 {
    rights::for_caller(|| {
        let filter = Filter::of_arguments(
            task_ids,
            actions,
            groups,
            status_like,
            causes,
            settled_since,
            settled_until,
            max_tasks,
        )?;
        match filter.only_ids()? {
            Some(ids) => restartable(|| delete(&ids, clock::now())),
            None => {
                let matching: Vec<(i64, bool)> = MATCHING.query(filter.given());
                rights::check_tasks(Doing::Change, matching.iter().map(|(task_no, _)| *task_no))?;
                restartable(|| Ok(delete_matching(&matching, clock::now())))
            }
        }
    })
}

/// Walks all tasks that nobody owns, and tells which are settled; those that were inserted first come first.
static MATCHING: Statement<Filters, (i64, bool)> = Statement::planned_each_time(
    sql!(
        "SELECT t.task_no, s.task_no IS NOT NULL
           FROM taskq.task t
           LEFT JOIN LATERAL (SELECT s.task_no, s.code, s.cause, s.settled_at, s.status FROM taskq.settled s
                               WHERE s.task_no = t.task_no OFFSET 0) AS s ON true
          WHERE ", on_tasks!(), "
            AND ($4 IS NULL OR CASE WHEN s.task_no IS NOT NULL THEN s.status
                                    ELSE (SELECT p.status FROM taskq.progress p WHERE p.task_no = t.task_no) END LIKE $4)
            AND ", on_ends!(), "
            AND NOT EXISTS (SELECT FROM taskq.run r WHERE r.task_no = t.task_no AND r.nonce <> 0 OFFSET 0)
          ORDER BY t.task_no
          LIMIT $8"
    ),
);

/// Deletes what a filter has found, but for what has begun, or come back to life, since.
fn delete_matching(matching: &[(i64, bool)], now: Time) -> i64 {
    let task_nos: Vec<i64> = matching.iter().map(|(task_no, _)| *task_no).collect();
    let mut rows = live::lock(&task_nos, Firmness::Change);
    let rest: Vec<i64> = task_nos.iter().copied().filter(|n| !rows.contains_key(n)).collect();
    let ended = live::hold_outcomes(&rest, Firmness::Change);
    // What was replaced has left its end behind, for those who wait for it, and is no task any more.
    let there = numbers::ids(&task_nos);
    let going: Vec<i64> = matching
        .iter()
        .filter(|(task_no, settled)| match rows.get(task_no) {
            Some(row) => !settled && !row.in_progress(),
            None => ended.contains_key(task_no),
        })
        .map(|(task_no, _)| *task_no)
        .filter(|task_no| there.contains_key(task_no))
        .collect();
    let kept: HashSet<i64> = going.iter().copied().collect();
    rows.retain(|task_no, _| kept.contains(task_no));
    delete_locked(going, rows, now)
}

/// Deletes tasks in waves: those asked for, then the blocked tasks that are left without any dependency,
/// and so on. Each wave is locked in the global order before it is touched.
fn delete(ids: &[&str], now: Time) -> Result<i64> {
    let idle = Idle { ids: ids.to_vec(), refusal };
    rights::check_tasks(Doing::Change, numbers::by_id(ids).into_values())?;
    idle.look()?;
    let (tasks, rows, _) = live::lock_any(ids, &[idle], Firmness::Change, Firmness::Change)?;
    rights::check_tasks(Doing::Change, tasks.values().copied())?;
    Ok(delete_locked(tasks.into_values().collect(), rows, now))
}

fn refusal(id: &str) -> Refusal {
    Refusal::state(id, "in progress", "cannot be deleted", "Wait until it is returned, or cancel it first.")
}

/// Deletes tasks whose live rows are locked, whatever their state.
pub(crate) fn delete_locked(mut wave: Vec<i64>, mut rows: HashMap<i64, Live>, now: Time) -> i64 {
    let mut deleted = 0;
    while !wave.is_empty() {
        check_for_interrupts();
        let outcomes = live::outcomes(&wave);
        deleted += remove(&wave, &rows, now);
        let left = edges_gone(&wave, &outcomes, now);
        rows = left.iter().map(|row| (row.task_no, row.clone())).collect();
        wave = left.iter().map(|row| row.task_no).collect();
    }
    deleted
}

static REMOVE_SETTLED: Statement<&[i64], (i64, i8)> = Statement::new(sql!(
    "WITH gone AS (
        DELETE FROM taskq.settled s WHERE s.task_no = ANY ($1)
        RETURNING s.task_no, s.settled_at, s.action_no, s.code, s.cause),
      ",
    uncounted!("gone"),
    "
      SELECT g.task_no, g.code FROM gone AS g"
));
static REMOVE_EDGES_RUN: Statement<&[i64]> =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.run_no = ANY ($1)");

/// Removes the rows of one wave; how many tasks there were.
fn remove(wave: &[i64], rows: &HashMap<i64, Live>, now: Time) -> i64 {
    live::remove(rows.values());
    let holders: Vec<i64> = rows.values().filter(|row| row.keyed).map(|row| row.task_no).collect();
    merge_key::given_back(&holders);
    let ends = REMOVE_SETTLED
        .map(wave, |(task_no, code)| (task_no, Outcome::from_stored(code)))
        .into_iter()
        .collect();
    progress::forget(wave);
    attempts::forget(wave);
    live::lock_edges_of(wave);
    REMOVE_EDGES_RUN.execute(wave);
    for task_no in wave {
        wake::settled(*task_no);
    }
    remove_tasks(wave, &ends, now)
}

static REMOVE_EDGES_AFTER: Statement<&[i64], (i64, i64)> = Statement::new(
    c"DELETE FROM taskq.dependency d WHERE d.after_no = ANY ($1) RETURNING d.after_no, d.run_no",
);
static LOWER: Statement<(&[i64], i32, i32, i32)> = Statement::new(
    c"UPDATE taskq.blocked b
         SET remaining = b.remaining - $2, dependencies = b.dependencies - $3, failures = b.failures - $4
       WHERE b.task_no = ANY ($1)",
);

/// Takes the edges from deleted tasks away. Blocked dependents with nothing left to wait for are released,
/// or complete if spontaneous; those left without any dependency are returned, locked, to be deleted.
fn edges_gone(wave: &[i64], outcomes: &HashMap<i64, Outcome>, now: Time) -> Vec<Live> {
    let mut losses: BTreeMap<i64, Waits> = BTreeMap::new();
    for (after, run) in REMOVE_EDGES_AFTER.query(wave) {
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
    let dependents: Vec<i64> = losses.keys().copied().collect();
    // A deleted task that had settled may have left a signal that nobody has counted yet. It is counted first: what is
    // taken away below was counted then. The counters are ours, so that nothing stays deferred.
    lock_for_change(&dependents);
    fold::of(&dependents, now);
    let blocked: Vec<Live> = lock_for_change(&dependents)
        .into_values()
        .filter(|row| matches!(row.place, Place::Blocked { .. }))
        .collect();

    let (mut orphans, mut free) = (Vec::new(), Vec::new());
    let mut lowered: BTreeMap<Waits, Vec<i64>> = BTreeMap::new();
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
        LOWER.execute((task_nos, loss.unsettled, loss.all, loss.failed));
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
