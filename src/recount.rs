//! What live tasks have to count, worked out from their dependencies: after others have started over or have gone, or what
//! suspensions have added has.
//!
//! **What is worked out.** The view `_standing` says what the stored dependencies of a task amount to; `taskq.check()` asks the same.
//! A task may have had others that are not stored any more: they were deleted or replaced, their retention is over, or they have started
//! over without it. What it has counted of these stays. It is what its numbers say beyond what was stored before the change
//! ([`Recount::before`]); with what is stored after it, that is what the task has ([`Recount::after`]).
//!
//! **Ends that are under way.** The caller has the live rows of the tasks locked, and needs nothing of what they wait for. An end that
//! comes meanwhile finds the counter locked and leaves a row in `countdown`, in the transaction that stores the end: a snapshot sees
//! both or none. So each look asks for the ends and for these rows by one statement, and sets the counter to what is left *with* those
//! rows, which are counted later as any others. An end that the snapshot does not see is open in it, and leaves its row for later. One
//! that had been counted before the lock is in the row that was locked. The edges that a task waits for are of the wait that its counter
//! is in; a task without a counter waits for none.

use std::collections::HashMap;

use crate::input::Wants;
use crate::insert::{Standing, block};
use crate::number::{FIRST_WAIT, TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, record};
use crate::settle::{Ending, TOO_FEW, release_or_complete, settle, without_open};
use crate::state::Cause;
use crate::store::live::{self, Counter, Live, Place};
use crate::store::{blocked, dependency, task};

record! {
    /// What the stored dependencies of a task amount to: a row of `_standing`.
    #[derive(Clone, Copy, Debug)]
    struct Seen {
        task_no: TaskNo,
        stored: i32,
        own: i32,
        open: i32,
        own_open: i32,
        met: i32,
        failed: i32,
        met_left: i32,
        lost_left: i32,
        failed_left: i32,
    }
}

static SEEN: Statement<&[TaskNo], Seen> = Statement::new(
    c"SELECT s.task_no, s.stored, s.own, s.open, s.own_open, s.met, s.failed, s.met_left, s.lost_left, s.failed_left
        FROM taskq._standing s WHERE s.task_no = ANY ($1)",
);

/// What the stored dependencies of a task amount to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stands {
    /// The task.
    pub(crate) task_no: TaskNo,
    wants: Wants,
    /// Its dependencies, without those that it has gone on without.
    pub(crate) stored: i32,
    /// Those that no suspension has added, and those without which it has gone on.
    pub(crate) own: i32,
    /// Of the stored ones, those that have not ended.
    pub(crate) open: i32,
    /// Those of them that no suspension has added.
    pub(crate) own_open: i32,
    /// Of those that no suspension has added, how many have ended as they should.
    pub(crate) met: i32,
    /// Of the stored ones, how many have aborted.
    pub(crate) failed: i32,
    met_left: i32,
    lost_left: i32,
    failed_left: i32,
}

/// What the stored dependencies of each of the tasks amount to.
pub(crate) fn stands(task_nos: &[TaskNo]) -> HashMap<TaskNo, Stands> {
    if task_nos.is_empty() {
        return HashMap::new();
    }
    let mut seen: HashMap<TaskNo, Seen> =
        SEEN.query(task_nos).into_iter().map(|seen| (seen.task_no, seen)).collect();
    let none = |task_no| Seen {
        task_no,
        stored: 0,
        own: 0,
        open: 0,
        own_open: 0,
        met: 0,
        failed: 0,
        met_left: 0,
        lost_left: 0,
        failed_left: 0,
    };
    let of = |(task_no, wants): (TaskNo, Wants)| {
        let seen = seen.remove(&task_no).unwrap_or_else(|| none(task_no));
        let Seen { stored, own, open, own_open, met, failed, met_left, lost_left, failed_left, .. } = seen;
        let stands = Stands {
            task_no,
            wants,
            stored,
            own,
            open,
            own_open,
            met,
            failed,
            met_left,
            lost_left,
            failed_left,
        };
        (task_no, stands)
    };
    task::wants(task_nos).into_iter().map(of).collect()
}

impl Stands {
    /// How many of its dependencies it needs, if not all.
    pub(crate) fn required(&self) -> Option<i32> {
        self.wants.num_required.filter(|_| !self.wants.signal)
    }

    /// What a counter of the task says: remaining, and to spare. `required`: so many suffice. `gone`: so many are met that are not
    /// stored; `lost`: so many are lost of a task that needs all.
    fn counter(&self, required: Option<i32>, gone: i32, lost: i32) -> (i32, i32) {
        match required {
            Some(required) => {
                let remaining = required - gone - self.met;
                (remaining, self.own_open - remaining)
            }
            None => {
                let remaining = self.open + lost + i32::from(self.wants.signal);
                (remaining, self.open - remaining)
            }
        }
    }

    fn standing(&self, (remaining, spare): (i32, i32)) -> Standing {
        match (remaining, spare + i32::from(self.wants.signal)) {
            (_, ..0) => Standing::Lost,
            (..1, _) => Standing::Free,
            _ => Standing::Waiting { remaining, spare },
        }
    }

    /// Where the task stands when it begins anew, if so many dependencies that are not stored any more count as met.
    pub(crate) fn anew(&self, gone: i32) -> Standing {
        let lost = self.own - self.own_open - self.met;
        self.standing(self.counter(self.required(), gone, lost))
    }

    /// The task has gone on without what is open of its own.
    fn drop_own_open(&mut self) {
        self.stored -= self.own_open;
        self.open -= self.own_open;
        self.own_open = 0;
    }
}

/// What a task has had of dependencies that are not stored any more.
#[derive(Clone, Copy, Debug)]
struct Gone {
    all: i32,
    failed: i32,
    /// Those that count for a task of which some suffice.
    met: i32,
    /// With these, so many more than it needs.
    spare: i32,
}

impl Gone {
    fn of(row: &Live, stands: &Stands) -> Self {
        let required = stands.required().unwrap_or(0);
        let has_met = match row.counter() {
            Some(counter) if counter.since.is_none() => required - counter.remaining + stands.met_left,
            // It had enough before it was freed, or suspended; what it waits for since is what it had.
            _ => stands.met.max(required - stands.own_open),
        };
        Gone {
            all: row.dependencies - stands.stored,
            failed: row.failures + stands.failed_left - stands.failed,
            met: has_met - stands.met,
            spare: has_met - required,
        }
    }
}

/// Tasks whose dependencies change, and what they have beyond those that are stored.
#[derive(Default)]
pub(crate) struct Recount(HashMap<TaskNo, Gone>);

/// What a task has after its dependencies have changed.
pub(crate) struct Recounted {
    /// The row as it was.
    pub(crate) was: Live,
    /// With its numbers; of one that waits, with its counter.
    pub(crate) row: Live,
    /// Where it belongs.
    pub(crate) standing: Standing,
    gone: Gone,
}

impl Recount {
    /// Looks at live tasks before their dependencies change. Their rows are the call's. One that was looked at before and not stored
    /// since keeps what was seen then.
    pub(crate) fn before<'a>(&mut self, rows: impl Iterator<Item = &'a Live>) {
        let rows: Vec<&Live> = rows.filter(|row| !self.0.contains_key(&row.task_no)).collect();
        let stands = stands(&rows.iter().map(|row| row.task_no).collect::<Vec<_>>());
        let of = |row: &&Live| Some((row.task_no, Gone::of(row, stands.get(&row.task_no)?)));
        self.0.extend(rows.iter().filter_map(of));
    }

    /// Whether a task that was looked at, and for which some of its dependencies suffice, has enough without so many that it has had.
    pub(crate) fn can_do_without(&self, task_no: TaskNo, met: i32) -> bool {
        self.0.get(&task_no).is_some_and(|gone| gone.spare >= met)
    }

    /// The task keeps what it has for now, and is counted later.
    pub(crate) fn put_off(&mut self, one: &Recounted) {
        self.0.insert(one.was.task_no, one.gone);
    }

    /// Those that have been looked at, and are to be counted.
    pub(crate) fn tasks(&self) -> Vec<TaskNo> {
        self.0.keys().copied().collect()
    }

    /// What those of the tasks have now that were looked at before; they are forgotten. Their rows may have counted since what was left
    /// for them.
    ///
    /// One that has enough of those of which some suffice goes on without what is open of them, if it had been freed before.
    pub(crate) fn after(&mut self, rows: Vec<Live>) -> Vec<Recounted> {
        let stands = stands(&rows.iter().map(|row| row.task_no).collect::<Vec<_>>());
        let mut dropped = Vec::new();
        let of = |row: Live| {
            let gone = self.0.remove(&row.task_no)?;
            let mut stands = *stands.get(&row.task_no)?;
            let suspended = row.counter().is_some_and(|counter| counter.since.is_some());
            let has_enough = stands.required().is_some_and(|n| n - gone.met - stands.met < 1);
            if has_enough && !suspended && stands.own_open > 0 {
                dropped.push(row.task_no);
                stands.drop_own_open();
            }
            Some(recounted(row, gone, &stands, suspended))
        };
        let all = rows.into_iter().filter_map(of).collect();
        if !dropped.is_empty() {
            dependency::DROP_OWN_OPEN.execute(dropped);
        }
        all
    }
}

fn recounted(was: Live, gone: Gone, stands: &Stands, suspended: bool) -> Recounted {
    let required = stands.required().filter(|_| !suspended);
    let (remaining, spare) = stands.counter(required, gone.met, stands.lost_left);
    let standing = stands.standing((remaining + stands.met_left, spare + stands.lost_left));
    let mut row = was.clone();
    row.dependencies = gone.all + stands.stored;
    // What is left is forgotten with a counter that goes.
    let left = if matches!(standing, Standing::Waiting { .. }) { stands.failed_left } else { 0 };
    row.failures = gone.failed + stands.failed - left;
    if let Place::Blocked(counter) = row.place {
        let (remaining, spare) = match standing {
            Standing::Waiting { remaining, spare } => (remaining, spare),
            _ => (0, 0),
        };
        row.place = Place::Blocked(Counter { remaining, spare, ..counter });
    }
    Recounted { was, row, standing, gone }
}

/// Stores what tasks have, and puts them where they belong. Those that come to wait are in these waits.
pub(crate) fn store(all: Vec<Recounted>, waits: &HashMap<TaskNo, WaitNo>, now: Time) {
    let (mut counted, mut free, mut moved, mut lost) = (vec![], vec![], vec![], vec![]);
    let mut others: Vec<(Live, i32, i32)> = Vec::new();
    for Recounted { was, row, standing, .. } in all {
        match (standing, row.counter().is_some()) {
            (Standing::Waiting { .. }, true) => counted.push(row),
            (Standing::Waiting { remaining, spare }, false) => {
                let wait_no = waits.get(&row.task_no).copied().unwrap_or(FIRST_WAIT);
                moved.push((row, remaining, spare, wait_no));
            }
            (Standing::Free, true) => free.push(row),
            (Standing::Lost, true) => lost.push(row),
            (_, false) => {
                let (all, failed) = (row.dependencies - was.dependencies, row.failures - was.failures);
                others.push((was, all, failed));
            }
        }
    }
    live::add(others.iter().map(|(row, all, failed)| (row, *all, *failed)));
    if !counted.is_empty() {
        let counters: Vec<(i32, i32)> = counted.iter().filter_map(remaining_and_spare).collect();
        let (remaining, spare): (Vec<i32>, Vec<i32>) = counters.into_iter().unzip();
        let numbers = counted.iter().map(|row| (row.failures, row.dependencies));
        let (failures, dependencies): (Vec<i32>, Vec<i32>) = numbers.unzip();
        let task_nos: Vec<TaskNo> = counted.iter().map(|row| row.task_no).collect();
        blocked::COUNT.execute((task_nos, remaining, spare, failures, dependencies));
    }
    block(moved);
    if !lost.is_empty() {
        without_open(lost.iter_mut());
    }
    live::remove(free.iter().chain(&lost));
    let too_few = |row: &Live| Ending::abort(row, Cause::Dependency, Some(TOO_FEW.to_owned()));
    let mut endings: Vec<Ending> = lost.iter().map(too_few).collect();
    endings.extend(release_or_complete(free, now));
    settle(endings, now);
}

fn remaining_and_spare(row: &Live) -> Option<(i32, i32)> {
    row.counter().map(|counter| (counter.remaining, counter.spare))
}
