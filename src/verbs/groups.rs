//! Groups: pausing, resuming, cancelling, deleting, retrying and resetting the tasks of one.

use std::collections::{HashMap, HashSet};

use pgrx::prelude::*;

use crate::clock;
use crate::error::{Refusal, Result};
use crate::input::check_name;
use crate::insert::{acyclic, cycle_refusal, lock_for_change, stored_arcs};
use crate::locks::{self, LockStrength, guard, restartable, turnstile};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::{self, check_for_interrupts};
use crate::pg::statement::Statement;
use crate::remove::{delete_beside, delete_locked};
use crate::revive::{Again, Back, Dependents, Gone, come_back, drop_suspending, lock_neighbours, start_over};
use crate::rights::{self, Doing};
use crate::settle::cancel_locked;
use crate::settle::fold;
use crate::settle::merge_keys;
use crate::store::live::{self, Live};
use crate::store::reason::Reason;
use crate::store::{aside, attempts, numbers, parked, progress, ready, ready_now, step, task, task_group};

/// `taskq.pause_group(group_id) -> bigint`
#[pg_extern(sql = "")]
fn taskq_pause_group(group_id: Option<&str>) -> i64 {
    rights::for_caller(|| check_pausing().and_then(|()| pause(known(group_id)?)))
}

/// `taskq.resume_group(group_id) -> bigint`
#[pg_extern(sql = "")]
fn taskq_resume_group(group_id: Option<&str>) -> i64 {
    rights::for_caller(|| check_pausing().and_then(|()| resume(known(group_id)?)))
}

/// `taskq.cancel_group(group_id) -> bigint`
#[pg_extern(sql = "")]
fn taskq_cancel_group(group_id: Option<&str>) -> i64 {
    rights::for_caller(|| known(group_id).and_then(|group| restartable(|| cancel_members(group))))
}

/// `taskq.delete_group(group_id) -> bigint`
#[pg_extern(sql = "")]
fn taskq_delete_group(group_id: Option<&str>) -> i64 {
    rights::for_caller(|| {
        let group = known(group_id)?;
        // Before the rows of tasks: the order of calls that set the group. A caller whose part is narrowed leaves what is set.
        if !rights::is_narrowed(Doing::Change) {
            LOCK_GROUP.execute(group);
        }
        restartable(|| delete(group))
    })
}

/// `taskq.retry_group(group_id) -> bigint`
#[pg_extern(sql = "")]
fn taskq_retry_group(group_id: Option<&str>) -> i64 {
    rights::for_caller(|| {
        let group = known(group_id)?;
        restartable(|| start_over(&members(group), Again::RetryAll, clock::now()))
    })
}

/// `taskq.reset_group(group_id) -> bigint`
#[pg_extern(sql = "")]
fn taskq_reset_group(group_id: Option<&str>) -> i64 {
    rights::for_caller(|| known(group_id).and_then(|group| restartable(|| reset(group, clock::now()))))
}

static KNOWN: Statement<&str, bool> = Statement::new(
    c"SELECT EXISTS (SELECT FROM taskq.task t WHERE t.group_id = $1)
          OR EXISTS (SELECT FROM taskq.task_group g WHERE g.group_id = $1)",
);

/// A group that has tasks, or that was paused or set.
fn known(group_id: Option<&str>) -> Result<&str> {
    let group = check_name("group_id", group_id)?;
    match KNOWN.first(group) {
        Some(true) => Ok(group),
        _ => Err(Refusal::no_such("group", group)),
    }
}

/// Refuses a caller whose part is narrowed: whether a group goes on concerns all that is in it, and comes into it.
fn check_pausing() -> Result<()> {
    rights::check_shared(
        Doing::Change,
        "pause or resume groups",
        "Ask an operator, or hold back your own tasks: taskq.update_tasks() gives them another time.",
    )
}

/// The tasks of a group that the caller may change, in the order of their numbers. The action of a task does not change.
fn members(group: &str) -> Vec<TaskNo> {
    rights::only_own(Doing::Change, task::of_group(group))
}

fn set_paused(group: &str, paused: bool) -> bool {
    let changed = task_group::SET_PAUSED.execute((group, paused)) > 0;
    if changed {
        task_group::NOTE_STOP.execute((group, clock::now()));
    }
    changed
}

fn pause(group: &str) -> Result<i64> {
    Ok(if set_paused(group, true) { pending(group) } else { 0 })
}

static PENDING: Statement<&str, i64> = Statement::new(
    c"SELECT pg_catalog.count(*) FROM taskq.task t
       WHERE t.group_id = $1
         AND NOT EXISTS (SELECT FROM taskq.settled s WHERE s.task_no = t.task_no OFFSET 0)
         AND NOT EXISTS (SELECT FROM taskq.run r WHERE r.task_no = t.task_no AND r.nonce <> 0 OFFSET 0)",
);

fn pending(group: &str) -> i64 {
    PENDING.first(group).unwrap_or(0)
}

static IS_PAUSED: Statement<&str, bool> =
    Statement::new(c"SELECT true FROM taskq.task_group g WHERE g.group_id = $1 AND g.paused");
static PAUSED: Statement<&str, bool> =
    Statement::new(c"SELECT true FROM taskq.task_group g WHERE g.group_id = $1 AND g.paused FOR UPDATE");

/// What was parked under the group comes back to the end of its priority, in its old order. Nothing is added once the row of the
/// group is locked: claims share the row to park.
fn resume(group: &str) -> Result<i64> {
    session::refuse_if_read_only();
    if IS_PAUSED.first(group).is_none() {
        return Ok(0);
    }
    turnstile::close(turnstile::Reason::Group(group));
    if PAUSED.first(group).is_none() {
        return Ok(0);
    }
    set_paused(group, false);
    let reason = Reason::Group(group.to_owned());
    locks::parked::lock_group(group);
    aside::release(&[reason.aside()]);
    ready::make_ready(&parked::release(&reason));
    // Calls that sleep now may have passed over those that no claim has moved.
    ready_now::wake_all_of_group(group);
    Ok(pending(group))
}

fn cancel_members(group: &str) -> Result<i64> {
    let task_nos = members(group);
    Ok(cancel_locked(&fold::locked(|| Ok(lock_for_change(&task_nos)), |rows| rows)?, None))
}

static LOCK_GROUP: Statement<&str> =
    Statement::new(c"SELECT FROM taskq.task_group g WHERE g.group_id = $1 FOR UPDATE");

/// All tasks of the group that the caller may change, the live rows and the ends of the others locked for a change, and the live rows. So none of
/// them is brought back to life, replaced or depended upon before this transaction ends; a transaction that has just
/// done that is waited for, and the group is read again.
///
/// Tasks that are inserted into the group from then on are none of the call's: they are not locked. Whatever is asked about
/// the group after this has a newer snapshot, and goes by these numbers only.
fn hold(group: &str) -> (Vec<TaskNo>, HashMap<TaskNo, Live>) {
    loop {
        check_for_interrupts();
        let task_nos = members(group);
        let rows = lock_for_change(&task_nos);
        let ended: Vec<TaskNo> = task_nos.iter().copied().filter(|n| !rows.contains_key(n)).collect();
        let held = locks::hold_outcomes(&ended, LockStrength::Update);
        if held.len() == ended.len() && members(group) == task_nos {
            return (task_nos, rows);
        }
    }
}

fn delete(group: &str) -> Result<i64> {
    let (task_nos, rows) = fold::locked(|| Ok(hold(group)), |(_, rows)| rows)?;
    if let Some(row) = rows.values().find(|row| row.in_progress()) {
        let ids = numbers::ids(&[row.task_no]);
        return Err(locks::held(
            ids.get(&row.task_no).map_or("", String::as_str),
            "cannot be deleted with its group",
            "Wait until it is returned, or cancel the group first.",
        ));
    }
    let deleted = delete_locked(task_nos, rows, clock::now());
    if !rights::is_narrowed(Doing::Change) {
        task_group::REMOVE.execute(group);
    }
    Ok(deleted)
}

/// A task is a seed for ever, or it is none.
static SEEDS: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT t.task_no
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT t.task_no, t.seed FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t
       WHERE t.seed",
);

static DEPENDENCIES: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT d.run_no FROM taskq.dependency d WHERE d.run_no = ANY ($1) AND d.state <> 'd'");

/// How many tasks that are there each of these depends on: those that it went on without are not counted.
fn dependencies_of(task_nos: &[TaskNo]) -> HashMap<TaskNo, i32> {
    let mut number: HashMap<TaskNo, i32> = HashMap::new();
    for run in DEPENDENCIES.query(task_nos) {
        *number.entry(run).or_default() += 1;
    }
    number
}

/// Back to the start: tokens are revoked, and what tries have left is forgotten. If the group has seed tasks, the
/// others are deleted. Returns how many tasks the group had.
///
/// Live dependents outside the group that had counted the end of one of those that stay wait for it again, unless they have
/// enough others (`num_required`), or the dependency belongs to a suspension that is over. One that is in progress goes on,
/// without that dependency.
fn reset(group: &str, now: Time) -> Result<i64> {
    guard();
    let (all, _) = hold(group);
    // Of those that are held: a seed inserted since is not locked, and may be ready, held or settled by now. That others have seeds in the
    // group is as good a reason for the caller's tasks to go, and is not changed by anything that they do.
    let mut seeds: Vec<TaskNo> = SEEDS.query(all.as_slice());
    seeds.sort_unstable();
    let others_have = rights::is_narrowed(Doing::Change) && !SEEDS.query(task::of_group(group)).is_empty();
    let stay: Vec<TaskNo> = if seeds.is_empty() && !others_have { all.clone() } else { seeds };
    let staying: HashSet<TaskNo> = stay.iter().copied().collect();
    let go: Vec<TaskNo> = all.iter().copied().filter(|n| !staying.contains(n)).collect();

    lock_neighbours(&all);
    fold::of(&all, now);
    let mut rows = lock_for_change(&all);
    let leaving: HashMap<TaskNo, Live> = go.iter().filter_map(|n| Some((*n, rows.remove(n)?))).collect();
    let dropped = drop_suspending(&stay);
    let before = dependencies_of(&stay);
    if !go.is_empty() {
        delete_beside(&staying, go, leaving, now);
        // What goes may have let others complete that seeds waited for.
        rows = lock_for_change(&stay);
    }
    let after = dependencies_of(&stay);
    let gone = |n: &TaskNo| before.get(n).unwrap_or(&0) - after.get(n).unwrap_or(&0);
    live::remove(rows.values());
    merge_keys::given_back(rows.values());
    progress::forget(&stay);
    step::forget(&stay);
    let less = |n: &TaskNo| gone(n) + dropped.get(n).unwrap_or(&0);
    let less: HashMap<TaskNo, i32> = stay.iter().map(|n| (*n, less(n))).collect();
    let totals = rows.values().map(|r| (r.task_no, r.dependencies - less[&r.task_no]));
    let back = Back {
        task_nos: &stay,
        live_totals: totals.collect(),
        dropped: less,
        gone: Gone::IsNone,
        dependents: Dependents::Wait,
    };
    come_back(&back, now);
    attempts::forget(&stay);
    acyclic(&stored_arcs(&stay)).map_err(|path| cycle_refusal(&path, &numbers::ids(&path)))?;
    Ok(all.len() as i64)
}
