//! Groups: pausing, resuming, cancelling, deleting, retrying and resetting all tasks of one.

use std::collections::{HashMap, HashSet};

use pgrx::prelude::*;

use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::insert::{acyclic, cycle_refusal, lock_for_change, stored_arcs};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::{self, check_for_interrupts};
use crate::pg::statement::Statement;
use crate::remove::{delete_beside, delete_locked};
use crate::revive::{Unrevivable, lock_neighbours, place, revive, uncount};
use crate::rights::{self, Doing};
use crate::settle::cancel_locked;
use crate::settle::fold;
use crate::store::guard::guard;
use crate::store::live::{self, Live, LockStrength};
use crate::store::order::restartable;
use crate::store::progress;
use crate::store::ready_now;
use crate::store::{aside, attempts, merge_key, numbers, parked, ready};
use crate::store::{task, task_group, turnstile};
use crate::wake;

/// `taskq.pause_group(group_id) -> bigint`
#[pg_extern(sql = "")]
fn taskq_pause_group(group_id: Option<&str>) -> i64 {
    rights::for_caller(|| {
        known(group_id).map(|group| if set_paused(group, true) { pending(group) } else { 0 })
    })
}

/// `taskq.resume_group(group_id) -> bigint`
#[pg_extern(sql = "")]
fn taskq_resume_group(group_id: Option<&str>) -> i64 {
    rights::for_caller(|| known(group_id).map(resume))
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
        // Before the rows of tasks, as whoever sets the group has it.
        LOCK.execute(group);
        restartable(|| delete(group))
    })
}

/// `taskq.retry_group(group_id) -> bigint`
#[pg_extern(sql = "")]
fn taskq_retry_group(group_id: Option<&str>) -> i64 {
    rights::for_caller(|| {
        known(group_id)
            .and_then(|group| restartable(|| revive(&members(group), Unrevivable::Leave, clock::now())))
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
    let group = required("group_id", group_id)?;
    match KNOWN.first(group) {
        Some(true) => {
            rights::check_found(Doing::Change, members_of_interest(group))?;
            Ok(group)
        }
        _ => Err(Refusal::no_such("group", group)),
    }
}

/// What a caller is asked about whose part is narrowed. It is not looked up for others.
fn members_of_interest(group: &str) -> impl Iterator<Item = TaskNo> {
    std::iter::once_with(|| members(group)).flatten()
}

/// The tasks of a group, in the order of their insertion.
fn members(group: &str) -> Vec<TaskNo> {
    task::of_group(group)
}

fn set_paused(group: &str, paused: bool) -> bool {
    task_group::SET_PAUSED.execute((group, paused)) > 0
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

/// What was parked under the group comes back to the end of its priority, in its old order.
fn resume(group: &str) -> i64 {
    session::refuse_if_read_only();
    if IS_PAUSED.first(group).is_none() {
        return 0;
    }
    turnstile::close(turnstile::Reason::Group(group));
    if PAUSED.first(group).is_none() {
        return 0;
    }
    set_paused(group, false);
    let reason = parked::Reason::Group(group.to_owned());
    parked::lock_group(group);
    aside::release(&[reason.aside()]);
    ready::make_ready(&parked::release(&reason));
    // Those that no claim has moved were passed over by calls that sleep now.
    ready_now::wake_all_of_group(group);
    wake::for_those_in_vain();
    pending(group)
}

fn cancel_members(group: &str) -> Result<i64> {
    let task_nos = members(group);
    Ok(cancel_locked(&fold::locked(|| Ok(lock_for_change(&task_nos)), |rows| rows)?, None))
}

static LOCK: Statement<&str> =
    Statement::new(c"SELECT FROM taskq.task_group g WHERE g.group_id = $1 FOR UPDATE");

/// All tasks of the group, the live rows and the ends of the others locked for a change, and the live rows. So none of
/// them is brought back to life, replaced or depended upon before this transaction ends; who has just done that is
/// waited for, and the group is looked at again.
fn hold(group: &str) -> (Vec<TaskNo>, HashMap<TaskNo, Live>) {
    loop {
        check_for_interrupts();
        let task_nos = members(group);
        let rows = lock_for_change(&task_nos);
        let ended: Vec<TaskNo> = task_nos.iter().copied().filter(|n| !rows.contains_key(n)).collect();
        let held = live::hold_outcomes(&ended, LockStrength::Update);
        if held.len() == ended.len() && members(group) == task_nos {
            return (task_nos, rows);
        }
    }
}

fn delete(group: &str) -> Result<i64> {
    let (task_nos, rows) = fold::locked(|| Ok(hold(group)), |(_, rows)| rows)?;
    if let Some(row) = rows.values().find(|row| row.in_progress()) {
        let ids = numbers::ids(&[row.task_no]);
        return Err(live::held(
            ids.get(&row.task_no).map_or("", String::as_str),
            "cannot be deleted with its group",
            "Wait until it is returned, or cancel the group first.",
        ));
    }
    let deleted = delete_locked(task_nos, rows, clock::now());
    task_group::REMOVE.execute(group);
    Ok(deleted)
}

static SEEDS: Statement<&str, TaskNo> =
    Statement::new(c"SELECT t.task_no FROM taskq.task t WHERE t.group_id = $1 AND t.seed");

static DEPENDENCIES: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT d.run_no FROM taskq.dependency d WHERE d.run_no = ANY ($1)");

/// How many tasks that are there each of these depends on.
fn dependencies_of(task_nos: &[TaskNo]) -> HashMap<TaskNo, i32> {
    let mut number: HashMap<TaskNo, i32> = HashMap::new();
    for run in DEPENDENCIES.query(task_nos) {
        *number.entry(run).or_default() += 1;
    }
    number
}

/// Back to the start: tokens are revoked, tries and results forgotten. If the group has seed tasks, the
/// others are deleted. Returns how many tasks the group had.
///
/// Live dependents outside the group that had counted the end of one of its tasks wait for it again. One that is in
/// progress goes on, without that dependency.
fn reset(group: &str, now: Time) -> Result<i64> {
    guard();
    let (all, _) = hold(group);
    let mut seeds: Vec<TaskNo> = SEEDS.query(group);
    seeds.sort_unstable();
    let stay: Vec<TaskNo> = if seeds.is_empty() { all.clone() } else { seeds };
    let staying: HashSet<TaskNo> = stay.iter().copied().collect();
    let go: Vec<TaskNo> = all.iter().copied().filter(|n| !staying.contains(n)).collect();

    lock_neighbours(&all);
    fold::of(&all, now);
    let mut rows = lock_for_change(&all);
    let leaving: HashMap<TaskNo, Live> = go.iter().filter_map(|n| Some((*n, rows.remove(n)?))).collect();
    let before = dependencies_of(&stay);
    if !go.is_empty() {
        delete_beside(&staying, go, leaving, now);
        // What goes may have let others complete that seeds waited for.
        rows = lock_for_change(&stay);
    }
    let after = dependencies_of(&stay);
    let gone = |n: &TaskNo| before.get(n).unwrap_or(&0) - after.get(n).unwrap_or(&0);
    uncount(&stay, &staying, now);
    let holders: Vec<TaskNo> = rows.values().filter(|r| r.keyed).map(|r| r.task_no).collect();
    live::remove(rows.values());
    merge_key::given_back(&holders);
    progress::forget(&stay);
    let totals = rows.values().map(|r| (r.task_no, r.dependencies - gone(&r.task_no)));
    place(&stay, &totals.collect(), now);
    attempts::forget(&stay);
    acyclic(&stored_arcs(&stay)).map_err(|path| cycle_refusal(&path, &numbers::ids(&path)))?;
    Ok(all.len() as i64)
}
