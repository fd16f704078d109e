//! Where tasks belong that come back.

use std::collections::HashMap;

use super::again::{Dependents, reopen};
use super::lost::{self, Gone};
use crate::insert::Standing;
use crate::locks;
use crate::number::{FIRST_WAIT, TaskNo};
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::recount::{Stands, stands};
use crate::settle::{Ending, TOO_FEW, fold, release_or_complete, settle, without_open};
use crate::state::{Cause, Outcome};
use crate::store::live::{Counter, Live, Place};
use crate::store::{attempts, blocked, dependency, expiry, numbers, settled, tally};

/// Tasks that come back. The caller holds their neighbours.
pub(crate) struct Back<'a> {
    /// Their numbers, in order.
    pub(crate) task_nos: &'a [TaskNo],
    /// How many dependencies those have that were not settled; their live rows are gone.
    pub(crate) live_totals: HashMap<TaskNo, i32>,
    /// So many dependencies those that were settled have lost since.
    pub(crate) dropped: HashMap<TaskNo, i32>,
    /// Whether dependencies count that are not stored any more.
    pub(crate) gone: Gone,
    /// What becomes of those that depend on them.
    pub(crate) dependents: Dependents,
}

/// Has tasks begin anew: those that depend on them wait again, and each is put back where its dependencies say it belongs, with new tries.
/// One that has lost a dependency which stays as it is, and that it cannot do without, aborts at once.
///
/// All their dependencies count for the first wait from here on. No end is on its way to a wait that a task had before: the caller holds
/// what these tasks wait for, and what was left for them is forgotten.
pub(crate) fn come_back(back: &Back, now: Time) {
    let reopened = reopen(back.task_nos, back.dependents, now);
    attempts::keep_last(back.task_nos);
    expiry::forget(back.task_nos);
    fold::forget(back.task_nos);
    let before = stands(back.task_nos);
    let gone = lost::gone(&before, back.gone, &back.dropped);
    let totals = bring_back(back, now);
    restore(back.task_nos);
    reopened.count(now);
    let after = stands(back.task_nos);
    let (mut waiting, mut free, mut lost): (Vec<blocked::New>, Vec<Live>, Vec<Live>) = Default::default();
    for (task_no, stands) in &after {
        let gone = gone.get(task_no).copied().unwrap_or(0);
        let standing = stands.anew(gone);
        let others = match stands.required() {
            Some(_) => gone,
            // Those that are gone have ended.
            None => totals.get(task_no).unwrap_or(&0) - before[task_no].stored,
        };
        let mut row = unblocked(stands, others);
        match standing {
            Standing::Waiting { remaining, spare } => {
                let counter =
                    Counter { remaining, spare, not_before: None, wait_no: FIRST_WAIT, since: None };
                waiting.push(blocked::New {
                    failures: row.failures,
                    dependencies: row.dependencies,
                    ..blocked::New::of(*task_no, None, counter)
                });
                continue;
            }
            _ if stands.own_open > 0 && stands.required().is_some() => {
                without_open(std::iter::once(&mut row));
            }
            _ => {}
        }
        if standing == Standing::Lost { &mut lost } else { &mut free }.push(row);
    }
    waiting.sort_unstable_by_key(|new| new.task_no);
    blocked::insert(waiting.into_iter());
    free.sort_unstable_by_key(|row| row.task_no);
    let mut endings = aborted(&lost);
    endings.extend(release_or_complete(free, now));
    settle(endings, now);
}

/// How tasks end that have lost too much.
fn aborted(rows: &[Live]) -> Vec<Ending> {
    let deciding = lost::deciding(&rows.iter().map(|row| row.task_no).collect::<Vec<_>>());
    let ids = numbers::ids(&deciding.values().map(|lost| lost.after).collect::<Vec<_>>());
    let of = |row: &Live| match deciding.get(&row.task_no) {
        Some(lost) => {
            let status = lost.status(ids.get(&lost.after).map_or("", String::as_str));
            Ending::abort(row, lost.cause(), Some(status))
        }
        None => Ending::abort(row, Cause::Dependency, Some(TOO_FEW.to_owned())),
    };
    rows.iter().map(of).collect()
}

/// Removes the rows of those that had settled; the numbers of dependencies of all.
fn bring_back(back: &Back, now: Time) -> HashMap<TaskNo, i32> {
    let mut totals = back.live_totals.clone();
    let mut grouped = Vec::new();
    settled::REMOVE.map(back.task_nos, |(task_no, dependencies, outcome, has_group)| {
        totals.insert(task_no, dependencies - back.dropped.get(&task_no).unwrap_or(&0));
        if has_group {
            grouped.push((task_no, Outcome::from_stored(outcome)));
        }
    });
    tally::revived(&grouped, now);
    totals
}

/// Dependencies that a task had from elsewhere than a suspension and that do not count for its first wait.
static ELSEWHERE: Statement<&[TaskNo], (TaskNo, TaskNo)> = Statement::new(
    c"SELECT d.after_no, d.run_no FROM taskq.dependency d
       WHERE d.run_no = ANY ($1) AND NOT d.suspending AND (d.state <> 'w' OR d.wait_no <> 0)",
);

/// The tasks are back where they began, with all of their dependencies. The edges are locked first: of what has settled the caller holds
/// no row, and a call that replaces it removes its dependencies.
fn restore(task_nos: &[TaskNo]) {
    let edges = ELSEWHERE.query(task_nos);
    if edges.is_empty() {
        return;
    }
    locks::lock_edges(&edges);
    let wait_nos = vec![FIRST_WAIT; edges.len()];
    let (after, run): (Vec<TaskNo>, Vec<TaskNo>) = edges.into_iter().unzip();
    dependency::WAIT_AGAIN.execute((after, run, wait_nos));
}

/// The live row that a task would have which waits for nothing more, and that has had so many others.
fn unblocked(stands: &Stands, others: i32) -> Live {
    let counter =
        Counter { remaining: 0, spare: stands.open, not_before: None, wait_no: FIRST_WAIT, since: None };
    Live {
        task_no: stands.task_no,
        place: Place::Blocked(counter),
        tries: 0,
        failures: stands.failed,
        dependencies: others + stands.stored,
        granted_at: None,
        deadline: Time::INFINITY,
        actor_id: None,
        limited: false,
        keyed: false,
    }
}
