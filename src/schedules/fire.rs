//! Inserting the runs of schedules that are due.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use super::cron::{Calendar, iso};
use super::due::{DUE, Due};
use crate::allowance::Allowance;
use crate::ends::touched::{self, Touch};
use crate::error::{Refusal, shortened};
use crate::input::{self, Reference, TaskSpec};
use crate::insert::{OnConflict, Options, insert};
use crate::locks::{self, LockStrength};
use crate::memory::{Belief, Memory, Remembered};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::pg::subtransaction::{all_or_nothing, within_lock_timeout};
use crate::rights;
use crate::settle::cancel_locked;
use crate::state::Condition;
use crate::store::{numbers, schedule};
use crate::wake;

/// How late a run may be for `backfill => 'none'`.
const GRACE: Duration = Duration::from_secs(60);

/// How many missed runs of a schedule `backfill => 'all'` inserts at a time, at most; the rest follow with later
/// calls.
const MOST_RUNS: usize = 1000;

/// For how long [`fire_due`] begins runs at most. A worker's call is to claim, not to insert what others have scheduled: what
/// is left stays due.
const MOST_TIME_TO_FIRE: Duration = Duration::from_millis(200);

/// How long the insertion of runs waits for one lock at most, in milliseconds. Which locks a task needs depends on what its
/// schedule says of it (such as a merge key that another transaction is just making, an id, the graph): they cannot all be
/// tried first.
const LOCK_WAIT_MS: i32 = 10;

/// Schedules whose runs would have had to wait for another transaction for longer; this backend leaves them alone for a second.
static PUT_OFF: Memory<Remembered<String, ()>> = Memory::of(Belief::PutOff);

/// Inserts the runs of up to `bound` schedules that are due, as many as there is time for, and one run at least that no other
/// transaction keeps from it; returns whether any schedule has gone on.
pub(crate) fn fire_due(bound: i32, now: Time) -> bool {
    // Without a check of the caller's parts: the call that happens to fire a schedule has not asked for it.
    rights::without_rights(|| fire_windows(bound, now))
}

fn fire_windows(bound: i32, now: Time) -> bool {
    let allowance = Allowance::quarter_of_time_out().at_most(MOST_TIME_TO_FIRE);
    let mut advanced = false;
    let mut behind = (Time::BEGINNING, String::new());
    loop {
        let due: Vec<Due> = DUE.query((now, bound, behind.0, behind.1.as_str(), None::<&str>));
        let is_cut = due.len() == bound as usize;
        let Some(last) = due.last() else { return advanced };
        behind = (last.next_at, last.name.clone());
        for schedule in due {
            if PUT_OFF.with(|put_off| put_off.get(&schedule.name).is_some()) {
                continue;
            }
            advanced |= fire(schedule, now, Some(&allowance));
            if allowance.is_used_up() {
                return advanced;
            }
        }
        // What others keep from running stays first: a call that has met nothing else goes on behind that.
        if advanced || !is_cut {
            return advanced;
        }
    }
}

/// Inserts all that is due of a schedule whose row is locked, before it gets other times. It waits for transactions that hold what a
/// run needs, as any insertion does.
pub(super) fn catch_up(name: &str, now: Time) {
    rights::without_rights(|| {
        while let Some(due) = DUE.first((now, 1, Time::BEGINNING, "", name)) {
            fire(due, now, None);
        }
    });
}

/// Inserts what is due of one schedule, and sets its next time. A schedule whose run cannot be inserted (as when a task that
/// is to run after it has begun) keeps the reason in `problem` and goes on with its next time. Whether it has gone on. Without an
/// `allowance` it waits for locks, and all that is due is inserted by and by: then it always goes on.
fn fire(schedule: Due, now: Time, allowance: Option<&Allowance>) -> bool {
    let Ok(calendar) = Calendar::parse(&schedule.cron, &schedule.timezone) else {
        schedule::ADVANCE.execute((
            schedule.name,
            Time::INFINITY,
            None::<Time>,
            None::<String>,
            "its cron expression or its time zone cannot be read any more",
        ));
        return false;
    };
    let (runs, next) = runs(&calendar, &schedule, now);
    let done = insert_all(&schedule, &runs, now, allowance);
    if done.stopped == Some(Stop::TimedOut) {
        PUT_OFF.with(|put_off| put_off.note(schedule.name.clone(), ()));
    }
    if done.stopped.is_some() && done.left == runs.first().copied() {
        return false;
    }
    let (last_at, last_id) = done.last.unzip();
    schedule::ADVANCE.execute((schedule.name, done.left.unwrap_or(next), last_at, last_id, done.problem));
    true
}

/// What inserting runs of a schedule has come to.
#[derive(Clone, Default)]
struct Done {
    /// The last run that was inserted, and its id.
    last: Option<(Time, String)>,
    /// The first that is due still.
    left: Option<Time>,
    /// Why there is one, if it is not for want of time.
    stopped: Option<Stop>,
    /// Why one was not inserted.
    problem: Option<String>,
}

/// What ends the insertion of runs; those that are left stay due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The run before, or a task that this one is linked to, is locked by another transaction.
    Busy,
    /// Something else that it needs is locked; it has been waited for, and is not again in each call.
    TimedOut,
}

/// Inserts runs in a subtransaction, as many as there is time for; in one each if that fails, so that one that cannot be
/// inserted keeps no other from it. (Hundreds of subtransactions, one for each run of a downtime, would make the snapshots of
/// all sessions slower.)
fn insert_all(schedule: &Due, runs: &[Time], now: Time, allowance: Option<&Allowance>) -> Done {
    let waits = allowance.is_none();
    let together = || -> std::result::Result<Done, String> {
        let mut done = Done::default();
        for (n, time) in runs.iter().enumerate() {
            if done.has_to_end(n, *time, allowance)
                || !done.add(*time, start(schedule, *time, &done.last, now, waits)?)
            {
                break;
            }
        }
        Ok(done)
    };
    if runs.len() > 1
        && let Some(Ok(done)) = attempt(waits, together)
    {
        return done;
    }
    let mut done = Done::default();
    for (n, time) in runs.iter().enumerate() {
        if done.has_to_end(n, *time, allowance) {
            break;
        }
        let go_on = match attempt(waits, || start(schedule, *time, &done.last, now, waits)) {
            Some(Ok(started)) => done.add(*time, started),
            Some(Err(reason)) => {
                done.problem = Some(reason);
                true
            }
            None => done.stop(*time, Stop::TimedOut),
        };
        if !go_on {
            break;
        }
    }
    done
}

/// Does work in a subtransaction; `None` if it would have to wait for a lock for long, and is not to.
fn attempt<T>(
    waits: bool,
    work: impl FnOnce() -> std::result::Result<T, String>,
) -> Option<std::result::Result<T, String>> {
    if waits { Some(all_or_nothing(work)) } else { within_lock_timeout(LOCK_WAIT_MS, work) }
}

impl Done {
    /// Whether it is time to leave this run, the nth from 0, and those that follow, to a later call.
    fn has_to_end(&mut self, n: usize, time: Time, allowance: Option<&Allowance>) -> bool {
        check_for_interrupts();
        let over = n > 0 && allowance.is_some_and(Allowance::is_used_up);
        if over {
            self.left = Some(time);
        }
        over
    }

    /// Notes what became of a run; whether to go on with the next.
    fn add(&mut self, time: Time, started: Started) -> bool {
        match started {
            Started::Inserted(id, problem) => {
                self.last = Some((time, id));
                self.problem = problem.or(self.problem.take());
            }
            Started::Skipped => {}
            Started::Busy => return self.stop(time, Stop::Busy),
        }
        true
    }

    /// Leaves this run, and those that follow, to a later call; there is nothing to go on with.
    fn stop(&mut self, time: Time, why: Stop) -> bool {
        (self.left, self.stopped) = (Some(time), Some(why));
        false
    }
}

/// The times for which a run is due now, as the backfill policy has it, and the next time after them. The work is that of
/// finding the times that are returned, however many were missed.
fn runs(calendar: &Calendar, schedule: &Due, now: Time) -> (Vec<Time>, Time) {
    let first = schedule.next_at;
    let mut due = match (schedule.backfill.as_str(), schedule.max_backfill) {
        ("all", None) => calendar.first(first, now, MOST_RUNS),
        ("all", Some(most)) => calendar.last(first, now, usize::try_from(most).unwrap_or(1)),
        _ => calendar.last(first, now, 1),
    };
    due.truncate(MOST_RUNS);
    let next = due.last().and_then(|time| calendar.after(*time)).unwrap_or(Time::INFINITY);
    if schedule.backfill == "none" {
        due.retain(|time| time.until(now) <= GRACE);
    }
    (due, next)
}

/// What starting a run came to.
enum Started {
    /// Another transaction has locked what it needs; the schedule stays due.
    Busy,
    /// With this id; and what was left out, if anything was.
    Inserted(String, Option<String>),
    /// The run before has not settled, or there is a task with the id of this run.
    Skipped,
}

/// Settled tasks among these that no transaction is removing or retrying.
static ENDED: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT s.task_no FROM taskq.settled s WHERE s.task_no = ANY ($1) FOR KEY SHARE SKIP LOCKED",
);

/// What is wrong with a run that is inserted all the same, if anything.
pub(super) fn problem_of(spec: &TaskSpec) -> Option<String> {
    let id = missing(spec)?;
    Some(format!("it is inserted without a dependency: task \"{}\" does not exist", shortened(&id)))
}

/// The first of the tasks that a run is linked to which does not exist.
pub(crate) fn missing(spec: &TaskSpec) -> Option<String> {
    let linked = || spec.depends_on.iter().chain(&spec.to_signal_after).filter(|other| !other.follows);
    let ids: Vec<&str> = linked().map(|reference| reference.id.as_str()).collect();
    if ids.is_empty() {
        return None;
    }
    let there = numbers::by_id(&ids);
    linked().find(|other| !there.contains_key(&other.id)).map(|other| other.id.clone())
}

/// Whether the stored tasks that a run is linked to can be locked without waiting. If so, they are ours from here on.
fn all_free(spec: &TaskSpec) -> bool {
    let linked = spec.depends_on.iter().chain(&spec.to_signal_after);
    let ids: Vec<&str> = linked.map(|reference| reference.id.as_str()).collect();
    let numbers: BTreeSet<TaskNo> = numbers::by_id(&ids).into_values().collect();
    if numbers.is_empty() {
        return true;
    }
    let all: Vec<TaskNo> = numbers.into_iter().collect();
    let ended: HashSet<TaskNo> = ENDED.query(all.as_slice()).into_iter().collect();
    all.iter().filter(|n| !ended.contains(n)).all(|n| is_free(*n))
}

/// Whether the live row of a task could be locked without waiting. If the task is ready, claims skip it until this
/// transaction ends, and waiting calls are woken then.
fn is_free(task_no: TaskNo) -> bool {
    // A transaction that finds its counter locked by us leaves the last look at its signals to us.
    touched::look_again(&[task_no], Touch::Locked);
    let (free, ready): (i32, Option<i32>) = FREE.first(task_no).unwrap_or_default();
    if let Some(action_no) = ready {
        wake::held(task_no, action_no);
    }
    free == 1
}

/// Live rows of a task that no other transaction has locked: they are locked now.
static FREE: Statement<TaskNo, (i32, Option<i32>)> = Statement::new(
    c"WITH r AS MATERIALIZED (SELECT r.action_no, r.grantable FROM taskq.run r
                               WHERE r.task_no = $1 FOR UPDATE SKIP LOCKED),
           b AS MATERIALIZED (SELECT FROM taskq.blocked b WHERE b.task_no = $1 FOR UPDATE SKIP LOCKED),
           s AS MATERIALIZED (SELECT FROM taskq.scheduled s WHERE s.task_no = $1 FOR UPDATE SKIP LOCKED),
           p AS MATERIALIZED (SELECT FROM taskq.parked p WHERE p.task_no = $1 FOR UPDATE SKIP LOCKED)
      SELECT ((SELECT pg_catalog.count(*) FROM r) + (SELECT pg_catalog.count(*) FROM b)
              + (SELECT pg_catalog.count(*) FROM s) + (SELECT pg_catalog.count(*) FROM p))::integer,
             (SELECT r.action_no FROM r WHERE r.grantable)",
);

/// Inserts the run of a time; why not, if it is refused. `last` is the run that this call has inserted before it. With `waits` it waits
/// for transactions that hold what it needs, and is never busy.
fn start(
    schedule: &Due,
    time: Time,
    last: &Option<(Time, String)>,
    now: Time,
    waits: bool,
) -> std::result::Result<Started, String> {
    let refused = |refusal: Refusal| refusal.summary();
    let id = format!("{}@{}", schedule.name, iso(time));
    let mut spec = input::parse_task(&schedule.task.0, "task").map_err(refused)?;
    let previous = last.as_ref().map(|(_, id)| id).or(schedule.last_task_id.as_ref());
    let mut replaced = None;
    let before = previous.and_then(|id| Some((id, *numbers::by_id(&[id]).get(id)?)));
    if let Some((_, number)) = before
        && waits
    {
        locks::lock(&[number], LockStrength::Update);
    }
    if let Some((previous, number)) = before
        && locks::outcomes(&[number]).is_empty()
    {
        // The call that fires a schedule does not wait for locks here.
        if !waits && !is_free(number) {
            return Ok(if schedule.overlap == "skip" { Started::Skipped } else { Started::Busy });
        }
        match schedule.overlap.as_str() {
            "queue" => spec.depends_on.push(Reference::following(previous.to_owned(), Condition::Settled)),
            "replace" => {
                replaced = Some(locks::lock(&[number], LockStrength::Update));
            }
            _ => return Ok(Started::Skipped),
        }
    }
    if !waits && !all_free(&spec) {
        return Ok(Started::Busy);
    }
    spec.id = Some(id.clone());
    spec.not_before = spec.not_before.filter(|due| *due > now);
    if let Some(rows) = &replaced {
        cancel_locked(rows, Some(format!("replaced by the next run, \"{id}\"")));
    }
    let options = Options { on_conflict: OnConflict::Skip, ignore_missing: true };
    let without = problem_of(&spec);
    let inserted = insert(vec![spec], options).map_err(refused)?;
    Ok(if inserted.is_empty() { Started::Skipped } else { Started::Inserted(id, without) })
}
