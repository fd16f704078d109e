//! Settled tasks start over, completed ones too, and with them what has been built on them.
//!
//! These start over: the tasks asked for, and, if that is wanted, every settled task downstream of them, whatever lies in between.
//! What a task has gone on without leads nowhere; nor does what a suspension has added: it has served a moment of the task that was
//! suspended, not its beginning. Pending tasks that had counted the end of one that starts over wait for it again, as for one that is
//! retried; a task in progress has begun with what is being taken back, and is the refusal.
//!
//! Without the others, dependents keep what they have counted. Their dependencies stay, and count for none of their waits any more
//! ([`Counts::KeptAsMet`]): the second end would be counted on top of the first otherwise.
//!
//! Locks are those of [`super`]: the guard, the ends, the neighbours. Callers are restartable.

use std::collections::{HashMap, HashSet};

use super::edges::Changed;
use super::uncount::{DEPENDENTS, KeptEnds, counted, uncount};
use super::{Gone, LOST, drop_suspending, hold, lock_neighbours, place, spare};
use crate::error::{Refusal, Result};
use crate::insert::{acyclic, cycle_refusal, lock_for_change, stored_arcs};
use crate::locks::{self, guard};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::settle::fold;
use crate::store::dependency::Counts;
use crate::store::live::Live;
use crate::store::{numbers, progress, step};

/// What becomes of those that depend on what starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// Those that have settled start over as well, and those that are pending wait again.
    StartOver,
    /// They keep what they have counted.
    Stay,
}

/// Whose steps outlive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    Nothing,
    /// Those of the tasks asked for: the caller has removed some of them.
    StepsOfAsked,
}

static SETTLED: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT s.task_no FROM taskq.settled s
       WHERE s.task_no = ANY ($1)
         AND EXISTS (SELECT FROM taskq.task t WHERE t.task_no = s.task_no OFFSET 0)",
);

/// Starts those of the tasks over that are settled; how many start over in all.
pub(crate) fn start_over(asked: &[TaskNo], dependents: Dependents, keeps: Keeps, now: Time) -> Result<i64> {
    guard();
    let asked = hold(&SETTLED, asked);
    if asked.is_empty() {
        return Ok(0);
    }
    let all = match dependents {
        Dependents::StartOver => with_all_downstream(&asked, now)?,
        Dependents::Stay => asked.iter().copied().collect(),
    };
    let mut task_nos: Vec<TaskNo> = all.iter().copied().collect();
    task_nos.sort_unstable();
    let neighbours = lock_neighbours(&task_nos);
    let dropped = drop_suspending(&task_nos);
    refuse_lost(&all, &task_nos, &dropped)?;
    match dependents {
        Dependents::StartOver => uncount(&task_nos, &all, KeptEnds::AreTakenBack, now),
        Dependents::Stay => count_no_more(&task_nos, &neighbours),
    }
    progress::forget(&task_nos);
    match keeps {
        Keeps::Nothing => step::forget(&task_nos),
        Keeps::StepsOfAsked => {
            let asked: HashSet<TaskNo> = asked.into_iter().collect();
            step::forget(&task_nos.iter().copied().filter(|n| !asked.contains(n)).collect::<Vec<_>>());
        }
    }
    place(&task_nos, &HashMap::new(), &dropped, Gone::Counts, now);
    // While they were settled, edges may have been added that only now close a cycle.
    acyclic(&stored_arcs(&task_nos)).map_err(|path| cycle_refusal(&path, &numbers::ids(&path)))?;
    Ok(task_nos.len() as i64)
}

static DOWNSTREAM: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"WITH RECURSIVE reached AS (
        SELECT u.task_no FROM pg_catalog.unnest($1) AS u(task_no)
         UNION
        SELECT d.run_no
          FROM reached AS r
         CROSS JOIN LATERAL (SELECT d.run_no FROM taskq.dependency d
                              WHERE d.after_no = r.task_no AND NOT d.suspending AND d.counts <> 'd' OFFSET 0) AS d)
      SELECT r.task_no FROM reached AS r",
);

static IN_PROGRESS: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT r.task_no
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT r.task_no FROM taskq.run r
                            WHERE r.task_no = u.task_no AND r.nonce <> 0 OFFSET 0) AS r
       ORDER BY r.task_no LIMIT 1",
);

/// The tasks, and every settled task downstream: in one round as far as they are seen, and in others what has changed while the
/// round before waited.
///
/// On the way, live dependents are locked and their deferred signals counted: one of them may end by that, and starts
/// over as well then. From here on none of them is granted or ends. Those that are further away wait for others in between.
fn with_all_downstream(asked: &[TaskNo], now: Time) -> Result<HashSet<TaskNo>> {
    let mut all: HashSet<TaskNo> = asked.iter().copied().collect();
    loop {
        check_for_interrupts();
        let mut reached: Vec<TaskNo> = DOWNSTREAM.query(asked);
        reached.retain(|task_no| !all.contains(task_no));
        // Before the call waits for another transaction.
        if let Some(task_no) = IN_PROGRESS.first(reached.as_slice()) {
            return Err(in_progress(task_no));
        }
        let found = hold(&SETTLED, &reached);
        all.extend(&found);
        let ended: Vec<TaskNo> = all.iter().copied().collect();
        let mut dependents: Vec<TaskNo> = dependents_of(&ended)
            .into_iter()
            .filter(|(.., edge)| !edge.suspending && edge.counts != Counts::Dropped)
            .map(|(_, run, _)| run)
            .collect();
        dependents.retain(|run| !all.contains(run));
        let mut counted = false;
        if !dependents.is_empty() {
            let rows = lock_for_change(&dependents);
            if let Some(row) = rows.values().find(|row| row.in_progress()) {
                return Err(in_progress(row.task_no));
            }
            counted = fold::of(&dependents, now);
        }
        if found.is_empty() && !counted {
            return Ok(all);
        }
    }
}

/// What there is to know of a dependency.
struct Edge {
    counts: Counts,
    suspending: bool,
}

/// The dependencies on these tasks: the one after which, the one that runs.
fn dependents_of(task_nos: &[TaskNo]) -> Vec<(TaskNo, TaskNo, Edge)> {
    DEPENDENTS.map(task_nos, |(after, run, _, _, counts, suspending)| {
        (after, run, Edge { counts: Counts::from_stored(counts), suspending })
    })
}

fn in_progress(task_no: TaskNo) -> Refusal {
    let ids = numbers::ids(&[task_no]);
    locks::held(
        ids.get(&task_no).map_or("", String::as_str),
        "depends on a task that is to start over",
        "Wait until it is returned, or cancel it first; rerun_tasks with downstream => false leaves dependents as they are.",
    )
}

/// Live dependents go on without a second end. Their rows are the call's.
fn count_no_more(task_nos: &[TaskNo], neighbours: &HashMap<TaskNo, Live>) {
    let mut spent = Changed::default();
    for edge in counted(task_nos, &HashSet::new()) {
        if !neighbours.contains_key(&edge.run) {
            continue;
        }
        let counts = match (edge.lost, edge.failed) {
            (true, _) => Counts::KeptAsLost,
            (false, true) => Counts::KeptAsFailed,
            (false, false) => Counts::KeptAsMet,
        };
        spent.count_no_more(edge.after, edge.run, counts);
    }
    spent.store();
}

/// Refuses if one of the tasks has lost more of those that stay as they are than it can do without.
fn refuse_lost(all: &HashSet<TaskNo>, task_nos: &[TaskNo], dropped: &HashMap<TaskNo, i32>) -> Result<()> {
    let mut lost: Vec<(TaskNo, TaskNo)> =
        LOST.query(task_nos).into_iter().map(|(run, after, _)| (run, after)).collect();
    lost.retain(|(_, after)| !all.contains(after));
    if lost.is_empty() {
        return Ok(());
    }
    lost.sort_unstable();
    let runs: Vec<TaskNo> = lost.iter().map(|(run, _)| *run).collect();
    let spare = spare(&runs, dropped);
    for of_one in lost.chunk_by(|(one, _), (next, _)| one == next) {
        let (run, after) = of_one[0];
        if of_one.len() as i32 > spare.get(&run).copied().unwrap_or(0) {
            return Err(lost_refusal(run, after));
        }
    }
    Ok(())
}

fn lost_refusal(run: TaskNo, after: TaskNo) -> Refusal {
    let ids = numbers::ids(&[run, after]);
    let id = |n: &TaskNo| ids.get(n).map_or("", String::as_str);
    Refusal::state(
        id(&run),
        &format!("settled, and has lost its dependency on \"{}\", which stays as it is", id(&after)),
        "cannot start over",
        "Name the task that it depends on as well, so that both start over; or leave out the one that leads to it.",
    )
}
