//! Where tasks belong that come back.

use std::collections::HashMap;

use super::edges::{Changed, Stored, Under, standing_of};
use super::some_of_many::{self, Gone, Had};
use crate::insert::{Standing, Waits};
use crate::number::{FIRST_WAIT, TaskNo};
use crate::pg::clock::Time;
use crate::settle::{Ending, Lost, TOO_FEW, fold, release_or_complete, settle, without_open};
use crate::state::{Cause, Outcome};
use crate::store::dependency::Counts;
use crate::store::live::{Counter, Live, Place};
use crate::store::{attempts, blocked, expiry, numbers, settled, tally, task};

/// Puts tasks back where their dependencies say they belong, with new tries. One that has lost a dependency which stays as
/// it is, and that it cannot do without, aborts at once. The caller holds their neighbours.
///
/// `live_totals` are the numbers of dependencies of those that were not settled; their live rows are gone. `dropped`: so many
/// dependencies those that were settled have lost since. `gone`: see [`Gone`].
pub(crate) fn place(
    task_nos: &[TaskNo],
    live_totals: &HashMap<TaskNo, i32>,
    dropped: &HashMap<TaskNo, i32>,
    gone: Gone,
    now: Time,
) {
    attempts::keep_last(task_nos);
    expiry::forget(task_nos);
    fold::forget(task_nos);
    let had = some_of_many::had(task_nos, gone, dropped);
    let totals = bring_back(task_nos, live_totals, dropped, now);
    let Standings { waits, lost, suspensions } = Standings::of(task_nos, &totals, &had);
    let wants = task::wants(task_nos);
    let (mut blocked, mut done, mut endings) = (Vec::new(), Vec::new(), Vec::new());
    for task_no in task_nos {
        let (mut wait, wants) = (waits[task_no], wants[task_no]);
        let standing = wait.standing(wants);
        if let Some(more) = suspensions.get(task_no) {
            wait.all += more.all;
            wait.failed += more.failed;
        }
        if let Standing::Waiting { remaining, spare } = standing {
            let counter = Counter { remaining, spare, not_before: None, wait_no: FIRST_WAIT, since: None };
            blocked.push(blocked::New {
                failures: wait.failed,
                dependencies: wait.all,
                ..blocked::New::of(*task_no, None, counter)
            });
            continue;
        }
        let mut row = unblocked(*task_no, &wait);
        if wait.unsettled > 0 && wants.num_required.is_some() {
            without_open(std::iter::once(&mut row));
        }
        if let Some(lost) = lost.get(task_no).filter(|_| standing == Standing::Lost) {
            let status = lost.status(numbers::ids(&[lost.after]).get(&lost.after).map_or("", String::as_str));
            endings.push(Ending::abort(&row, lost.cause(), Some(status)));
        } else if standing == Standing::Lost {
            endings.push(Ending::abort(&row, Cause::Dependency, Some(TOO_FEW.to_owned())));
        } else {
            done.push(row);
        }
    }
    blocked::insert(blocked.into_iter());
    endings.extend(release_or_complete(done, now));
    settle(endings, now);
}

/// Where tasks stand that begin anew.
struct Standings {
    waits: HashMap<TaskNo, Waits>,
    /// The dependency that decides, of those that have lost one.
    lost: HashMap<TaskNo, Lost>,
    /// What suspensions have added, of tasks that need some of the others.
    suspensions: HashMap<TaskNo, Waits>,
}

impl Standings {
    /// `totals` are the numbers of dependencies. Those that were dropped count again. Of tasks that need some of them, `had` has what
    /// counts beside those that are stored.
    ///
    /// All of them count for the first wait from here on. No end is on its way to a wait that the task had before: the caller holds
    /// what these tasks wait for, and what was left for them is forgotten.
    fn of(task_nos: &[TaskNo], totals: &HashMap<TaskNo, i32>, had: &HashMap<TaskNo, Had>) -> Self {
        let beside = |n: &TaskNo| had.get(n).map(|had| had.gone).or(totals.get(n).copied()).unwrap_or(0);
        let mut waits: HashMap<TaskNo, Waits> =
            task_nos.iter().map(|n| (*n, Waits { all: beside(n), ..Waits::default() })).collect();
        let mut suspensions: HashMap<TaskNo, Waits> = HashMap::new();
        let mut lost: HashMap<TaskNo, Lost> = HashMap::new();
        let mut restored = Changed::default();
        standing_of(task_nos, |edge| {
            let Stored { run, after, condition, first_condition, outcome, wait_no, counts, suspending } =
                edge;
            if suspending && counts.is_kept() {
                // The end that there is counts from here on, for no wait.
                restored.wait(after, run, wait_no, Under::ThatOfSuspension);
            }
            if suspending && had.contains_key(&run) {
                let wait = suspensions.entry(run).or_default();
                wait.all += 1;
                wait.count(after, condition, outcome);
                return;
            }
            let wait = waits.entry(run).or_default();
            // It is back where it began, with all of its dependencies.
            wait.all += i32::from(counts == Counts::Dropped || had.contains_key(&run));
            let is_of_other_wait = outcome.is_none() && wait_no != FIRST_WAIT;
            let has_changed =
                counts != Counts::ForItsWait || condition != first_condition || is_of_other_wait;
            // What a suspension has added and the task has got belongs to no wait from here on.
            if !suspending && has_changed {
                restored.wait(after, run, FIRST_WAIT, Under::First);
            }
            if let Some(one) = wait.count(after, first_condition, outcome) {
                lost.insert(run, Lost::decides(lost.get(&run).copied(), one));
            }
        });
        restored.store();
        Standings { waits, lost, suspensions }
    }
}

/// Removes the rows of those that had settled; the numbers of dependencies of all.
fn bring_back(
    task_nos: &[TaskNo],
    live_totals: &HashMap<TaskNo, i32>,
    dropped: &HashMap<TaskNo, i32>,
    now: Time,
) -> HashMap<TaskNo, i32> {
    let mut totals = live_totals.clone();
    let mut grouped = Vec::new();
    settled::REMOVE.map(task_nos, |(task_no, dependencies, outcome, has_group)| {
        totals.insert(task_no, dependencies - dropped.get(&task_no).unwrap_or(&0));
        if has_group {
            grouped.push((task_no, Outcome::from_stored(outcome)));
        }
    });
    tally::revived(&grouped, now);
    totals
}

/// The live row that a task would have which waits for nothing more.
fn unblocked(task_no: TaskNo, wait: &Waits) -> Live {
    let counter =
        Counter { remaining: 0, spare: wait.unsettled, not_before: None, wait_no: FIRST_WAIT, since: None };
    Live {
        task_no,
        place: Place::Blocked(counter),
        tries: 0,
        failures: wait.failed,
        dependencies: wait.all,
        granted_at: None,
        deadline: Time::INFINITY,
        actor_id: None,
        limited: false,
        keyed: false,
    }
}
