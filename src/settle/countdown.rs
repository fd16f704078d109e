//! Counting down the tasks that wait.
//!
//! **Counting waits for no counter.** It changes the counters it needs without waiting for a lock, in the order
//! of task numbers; for a counter that another transaction has locked it appends a row to `countdown` instead. Those
//! rows are folded into the counter later (see [`super::fold`]), by a transaction that has locked the
//! counter *first* and then deletes them with a newer snapshot: whichever of the two commits first, each
//! end is counted by exactly one transaction, the one that updates the counter and commits. That one does so
//! as soon as it matters is the concern of [`super::commit`].

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Ending, Lost};
use crate::ends::touched::{self, Touch};
use crate::number::{FIRST_WAIT, TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::state::{Cause, Outcome};
use crate::store::blocked::{self, News};
use crate::store::dependency::{self, Edge, Loss};
use crate::store::freed::Freed;
use crate::store::live::{Live, Place};
use crate::store::{countdown, numbers, ready, task};

/// What a task that waits has to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Dependencies that ended as they should.
    pub(crate) satisfied: i32,
    /// Of these and the lost ones, how many aborted.
    pub(crate) failed: i32,
    /// Dependencies that ended the wrong way.
    pub(crate) lost: i32,
    /// Of the lost ones, how many were not needed.
    pub(crate) skipped: i32,
    /// The status that a lost dependency gives the task: one that has failed, if one has.
    pub(crate) lost_status: Option<String>,
}

impl Delta {
    /// So many that were satisfied and lost, and of both that aborted.
    pub(crate) fn counted(satisfied: i32, lost: i32, failed: i32) -> Self {
        Delta { satisfied, lost, failed, ..Delta::default() }
    }

    /// Whether nothing that was lost has failed: the task would be skipped, not aborted.
    pub(super) fn only_skipped(&self) -> bool {
        self.skipped == self.lost
    }

    /// Counts what another has to tell as well.
    pub(super) fn add(&mut self, other: Delta) {
        if self.lost_status.is_none() || (self.only_skipped() && !other.only_skipped()) {
            self.lost_status = other.lost_status;
        }
        self.satisfied += other.satisfied;
        self.failed += other.failed;
        self.lost += other.lost;
        self.skipped += other.skipped;
    }
}

/// Deltas by the number of the task and of its wait, in the order in which counters are locked.
pub(crate) type Deltas = BTreeMap<(TaskNo, WaitNo), Delta>;

/// What these ends mean for the tasks that wait for them.
pub(crate) fn deltas(news: &[(TaskNo, Outcome)]) -> Deltas {
    let outcomes: HashMap<TaskNo, Outcome> = news.iter().copied().collect();
    let task_nos: Vec<TaskNo> = news.iter().map(|(task_no, _)| *task_no).collect();
    let mut edges = dependency::waiting_for(&task_nos);
    edges.sort_unstable_by_key(|(edge, _)| (edge.run, edge.after));

    let mut deltas = Deltas::new();
    let mut lost: BTreeMap<(TaskNo, WaitNo), Lost> = BTreeMap::new();
    for (Edge { after, run, condition }, wait_no) in edges {
        let outcome = outcomes[&after];
        let delta = deltas.entry((run, wait_no)).or_default();
        delta.failed += i32::from(outcome.is_abort());
        match Lost::of(after, condition, outcome) {
            None => delta.satisfied += 1,
            Some(one) => {
                delta.lost += 1;
                delta.skipped += i32::from(one.skipped());
                let before = lost.get(&(run, wait_no)).copied();
                lost.insert((run, wait_no), Lost::decides(before, one));
            }
        }
    }
    let mut causes: Vec<TaskNo> = lost.values().map(|lost| lost.after).collect();
    causes.dedup();
    let ids = numbers::ids(&causes);
    for (waiting, lost) in lost {
        let id = ids.get(&lost.after).map_or("", String::as_str);
        deltas.entry(waiting).or_default().lost_status = Some(lost.status(id));
    }
    deltas
}

/// Which of the tasks have a counter.
static STILL_BLOCKED: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT b.task_no FROM taskq.blocked b WHERE b.task_no = ANY ($1)");

/// Counts what can be counted now, defers the rest, and returns the tasks that end by it. `settled_at`: when that settled which is
/// told; `None`: it has been told in time.
///
/// **What settles after the time-out of a suspension counts for nothing**, whether a call has looked after the time-out or not: it is
/// neither counted nor deferred, and goes as one that is open (see [`dependency::drop_open`]) when the time-out is seen to. So
/// whether it came in time is decided once, by the call that settled it, from what the row of `blocked` says: `until` stays the same
/// for as long as the wait has its number.
pub(crate) fn apply(deltas: Deltas, settled_at: Option<Time>, now: Time) -> Vec<Ending> {
    if deltas.is_empty() {
        return Vec::new();
    }
    let news: Vec<News> = deltas
        .iter()
        .map(|((task_no, wait_no), delta)| News {
            task_no: *task_no,
            wait_no: *wait_no,
            satisfied: delta.satisfied,
            lost: delta.lost,
            failed: delta.failed,
            settled_at,
        })
        .collect();
    let counted = blocked::count_down(&news);
    defer(&deltas, counted.busy, &counted.not_there);
    let mut over = counted.over;
    go_on_without_open(&mut over);
    let done =
        over.extract_if(.., |row| row.counter().is_some_and(|counter| counter.remaining <= 0)).collect();
    let mut endings: Vec<Ending> = over
        .iter()
        .map(|lost| {
            let wait_no = lost.counter().map_or(FIRST_WAIT, |counter| counter.wait_no);
            let delta = &deltas[&(lost.task_no, wait_no)];
            Ending::abort(lost, Cause::of_lost(delta.only_skipped()), delta.lost_status.clone())
        })
        .collect();
    endings.extend(release_or_complete(done, now));
    endings
}

/// Appends the ends for tasks whose counters other transactions have locked. A task that has no counter any more
/// (it was cancelled, or has aborted by an earlier end) needs none; one that is there by now was not to be had either.
fn defer(deltas: &Deltas, mut busy: Vec<(TaskNo, WaitNo)>, not_there: &[(TaskNo, WaitNo)]) {
    if !not_there.is_empty() {
        let task_nos: Vec<TaskNo> = not_there.iter().map(|(task_no, _)| *task_no).collect();
        let still: HashSet<TaskNo> = STILL_BLOCKED.query(task_nos).into_iter().collect();
        busy.extend(not_there.iter().filter(|(task_no, _)| still.contains(task_no)));
    }
    if busy.is_empty() {
        return;
    }
    countdown::append(busy.iter().map(|waiting| {
        let delta = &deltas[waiting];
        let status = delta.lost_status.as_deref();
        countdown::Countdown {
            task_no: waiting.0,
            wait_no: waiting.1,
            satisfied: delta.satisfied,
            failed: delta.failed,
            lost: delta.lost,
            status,
            skipped: delta.skipped,
        }
    }));
    touched::look_again(&busy.iter().map(|(task_no, _)| *task_no).collect::<Vec<_>>(), Touch::LeftRow);
}

/// Tasks that wait no more, and for which some of their dependencies suffice, go on without those that are open; suspended ones do not.
pub(crate) fn go_on_without_open(rows: &mut [Live]) {
    let with_open = rows
        .iter()
        .filter(|row| row.counter().is_some_and(|counter| counter.open() > 0 && counter.since.is_none()));
    let task_nos: Vec<TaskNo> = with_open.map(|row| row.task_no).collect();
    // One that aborts, and needs all of its dependencies, keeps those that are open: a retry waits for them.
    let some_suffice = task::with_num_required(&task_nos);
    if some_suffice.is_empty() {
        return;
    }
    without_open(rows.iter_mut().filter(|row| some_suffice.contains_key(&row.task_no)));
}

/// Has tasks whose counters are the call's go on without what is open of their dependencies. What was left for them and not counted yet is
/// counted; those that have lost a dependency by that, with what has become of it.
///
/// To be called before [`live::remove`](crate::store::live::remove), which forgets what was left for them.
pub(crate) fn without_open<'a>(rows: impl Iterator<Item = &'a mut Live>) -> HashMap<TaskNo, Delta> {
    let mut rows: HashMap<TaskNo, &mut Live> = rows.map(|row| (row.task_no, row)).collect();
    let mut losses: HashMap<TaskNo, Delta> = HashMap::new();
    for (run, loss) in dependency::drop_open(rows.keys().copied().collect()) {
        let Some(row) = rows.get_mut(&run) else { continue };
        match loss {
            Loss::Open => row.dependencies -= 1,
            Loss::Left { wait_no, failed, lost, skipped, lost_status }
                if row.counter().is_some_and(|counter| counter.wait_no == wait_no) =>
            {
                row.failures += failed;
                if lost > 0 {
                    losses.entry(run).or_default().add(Delta {
                        lost,
                        failed,
                        skipped,
                        lost_status,
                        ..Delta::default()
                    });
                }
            }
            // Of an earlier wait.
            Loss::Left { .. } => {}
        }
    }
    for row in rows.into_values() {
        if let Place::Blocked(counter) = &mut row.place {
            counter.spare = -counter.remaining;
        }
    }
    losses
}

/// Tasks with nothing left to wait for: the spontaneous ones whose time has come complete, the others are released.
pub(crate) fn release_or_complete(done: Vec<Live>, now: Time) -> Vec<Ending> {
    if done.is_empty() {
        return Vec::new();
    }
    let spontaneous = task::spontaneous_by(now, done.iter().map(|c| c.task_no));
    let (complete, released): (Vec<Live>, Vec<Live>) =
        done.into_iter().partition(|c| spontaneous.contains(&c.task_no));
    ready::release(
        released
            .iter()
            .map(|c| Freed { not_before: c.counter().and_then(|counter| counter.not_before), ..c.freed() })
            .collect(),
        now,
    );
    complete.iter().map(|counter| Ending::of(counter, Outcome::Completed, Cause::Spontaneous, None)).collect()
}
