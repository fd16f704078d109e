//! Locking live rows of tasks, by number or by id.

use std::collections::HashMap;
use std::convert::Infallible;

use super::courtesy::give_way;
use super::forms::{Lock, LockStrength, locking};
use super::in_progress::Idle;
use super::order::{self, Rank};
use super::settled::hold_outcomes;
use crate::ends::touched;
use crate::error::Result;
use crate::number::TaskNo;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{FromRow, Statement};
use crate::pg::table::Wait;
use crate::state::Outcome;
use crate::store::live_row::{InBlocked, Live, Parked, Place, Scheduled};
use crate::store::{numbers, run};
use crate::wake;

static LOCK_BLOCKED: Lock<InBlocked> = locking!(
    "SELECT b.task_no, b.tries, b.failures, b.dependencies, b.remaining, b.spare, b.not_before, b.wait_no, b.since
       FROM taskq.blocked b WHERE b.task_no = ANY ($1) ORDER BY b.task_no"
);
static LOCK_SCHEDULED: Lock<Scheduled> = locking!(
    "SELECT s.task_no, s.tries, s.failures, s.dependencies, s.due, s.held_back
       FROM taskq.scheduled s WHERE s.task_no = ANY ($1) ORDER BY s.task_no"
);
static LOCK_PARKED: Lock<Parked> = locking!(
    "SELECT p.task_no, p.tries, p.failures, p.dependencies
       FROM taskq.parked p WHERE p.task_no = ANY ($1) ORDER BY p.task_no"
);

/// Which of the tasks have a live row.
static LIVING: Statement<&[TaskNo]> = Statement::new(
    c"SELECT u.task_no FROM pg_catalog.unnest($1) AS u(task_no)
       WHERE EXISTS (SELECT FROM taskq.run r WHERE r.task_no = u.task_no OFFSET 0)
          OR EXISTS (SELECT FROM taskq.blocked b WHERE b.task_no = u.task_no OFFSET 0)
          OR EXISTS (SELECT FROM taskq.scheduled s WHERE s.task_no = u.task_no OFFSET 0)
          OR EXISTS (SELECT FROM taskq.parked p WHERE p.task_no = u.task_no OFFSET 0)",
);
static UNSETTLED: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT t.task_no FROM taskq.task t
       WHERE t.task_no = ANY ($1)
         AND NOT EXISTS (SELECT FROM taskq.settled s WHERE s.task_no = t.task_no OFFSET 0)",
);

/// Locks the live rows of those of the tasks that are not settled; waits for transactions that hold them.
///
/// A task may move from one table to another between two of the statements (each sees what was committed when it
/// began). What is in no table and not settled is searched for again: the transaction that moved it has committed
/// by then, since we waited for it or saw its effect.
///
/// A restartable call waits only while it holds no row of that rank or a later one (see [`order`]).
pub(crate) fn lock(task_nos: &[TaskNo], strength: LockStrength) -> HashMap<TaskNo, Live> {
    lock_if(task_nos, strength, &|_| Ok(())).unwrap_or_default()
}

/// The same; `check` is asked of each row of `run` as soon as it is locked, before any other is waited for: the task may be
/// in progress by now, in the hands of a transaction that has changed one of the next, and that will want this one.
fn lock_if(
    task_nos: &[TaskNo],
    strength: LockStrength,
    check: &dyn Fn(&Live) -> Result<()>,
) -> Result<HashMap<TaskNo, Live>> {
    let mut found: HashMap<TaskNo, Live> = HashMap::with_capacity(task_nos.len());
    let mut missing: Vec<TaskNo> = task_nos.to_vec();
    missing.sort_unstable();
    missing.dedup();
    if strength == LockStrength::KeyShare {
        give_way(&missing);
    }
    while !missing.is_empty() {
        check_for_interrupts();
        let waiting = order::may_wait(Rank::Live);
        let how = (strength, waiting);
        missing.sort_unstable();
        run::lock(&missing, strength, if waiting { Wait::Yes } else { Wait::No }, |locked| {
            check(&locked.live)?;
            if locked.grantable {
                // Claims may skip a ready task while it is locked, and a call that has looked and found nothing else may be
                // asleep by the time the lock ends.
                wake::held(locked.live.task_no, locked.action_no);
            }
            found.insert(locked.live.task_no, locked.live);
            Ok(())
        })?;
        missing.retain(|task_no| !found.contains_key(task_no));
        // Ends for counters that are locked here are left in `countdown`: they are counted before this transaction commits.
        if !missing.is_empty() {
            touched::locking();
        }
        from(&LOCK_BLOCKED, how, &mut missing, &mut found, Live::from);
        from(&LOCK_SCHEDULED, how, &mut missing, &mut found, Live::from);
        from(&LOCK_PARKED, how, &mut missing, &mut found, Live::from);
        if !found.is_empty() {
            order::holds(Rank::Live);
        }
        if !missing.is_empty() && !waiting && LIVING.execute(missing.as_slice()) > 0 {
            order::restart_with_live(task_nos, strength);
        }
        if !missing.is_empty() {
            missing = UNSETTLED.query(missing.as_slice());
        }
    }
    let blocked = found.values().filter(|l| matches!(l.place, Place::Blocked(_))).map(|l| l.task_no);
    touched::locked(&blocked.collect::<Vec<_>>());
    Ok(found)
}

/// Locks those of the live rows, for a change, that no other transaction has locked. It passes over the others.
pub(crate) fn try_lock(task_nos: &[TaskNo]) -> HashMap<TaskNo, Live> {
    let mut found: HashMap<TaskNo, Live> = HashMap::with_capacity(task_nos.len());
    let mut missing: Vec<TaskNo> = task_nos.to_vec();
    missing.sort_unstable();
    let how = (LockStrength::Update, false);
    let see = |locked: run::Locked| {
        if locked.grantable {
            wake::held(locked.live.task_no, locked.action_no);
        }
        found.insert(locked.live.task_no, locked.live);
        Ok::<(), Infallible>(())
    };
    match run::lock(&missing, LockStrength::Update, Wait::No, see) {
        Ok(()) => {}
        Err(never) => match never {},
    }
    missing.retain(|task_no| !found.contains_key(task_no));
    if !missing.is_empty() {
        // As in `lock_if`.
        touched::locking();
    }
    from(&LOCK_BLOCKED, how, &mut missing, &mut found, Live::from);
    from(&LOCK_SCHEDULED, how, &mut missing, &mut found, Live::from);
    from(&LOCK_PARKED, how, &mut missing, &mut found, Live::from);
    let blocked = found.values().filter(|live| live.counter().is_some()).map(|live| live.task_no);
    touched::locked(&blocked.collect::<Vec<_>>());
    found
}

/// Locks what there is in one table.
fn from<R: FromRow>(
    table: &'static Lock<R>,
    (strength, waiting): (LockStrength, bool),
    missing: &mut Vec<TaskNo>,
    found: &mut HashMap<TaskNo, Live>,
    read: impl Fn(R) -> Live,
) {
    if missing.is_empty() {
        return;
    }
    found.extend(table.statement(strength, waiting).map(missing.as_slice(), |row| {
        let live = read(row);
        (live.task_no, live)
    }));
    missing.retain(|task_no| !found.contains_key(task_no));
}

/// Finds tasks by id and locks them. A task may be replaced while we wait for it; then the id is another
/// task's, and that one is locked as well.
pub(crate) fn lock_by_id(
    ids: &[&str],
    strength: LockStrength,
) -> (HashMap<String, TaskNo>, HashMap<TaskNo, Live>) {
    lock_by_id_idle(ids, &[], strength).unwrap_or_default()
}

fn lock_by_id_idle(
    ids: &[&str],
    idle: &[Idle],
    strength: LockStrength,
) -> Result<(HashMap<String, TaskNo>, HashMap<TaskNo, Live>)> {
    let mut found = numbers::by_id(ids);
    loop {
        let task_nos: Vec<TaskNo> = found.values().copied().collect();
        if task_nos.is_empty() {
            return Ok((found, HashMap::new()));
        }
        let may_not: HashMap<TaskNo, (&Idle, &str)> =
            idle.iter().flat_map(|idle| idle.by_number(&found)).collect();
        let check = |row: &Live| match may_not.get(&row.task_no) {
            Some((idle, id)) if row.in_progress() => Err((idle.refusal)(id)),
            _ => Ok(()),
        };
        let rows = lock_if(&task_nos, strength, &check)?;
        let now = numbers::by_id(ids);
        if now == found {
            return Ok((found, rows));
        }
        found = now;
    }
}

/// The numbers of tasks by id, the live rows, and how the others ended.
pub(crate) type Found = (HashMap<String, TaskNo>, HashMap<TaskNo, Live>, HashMap<TaskNo, Outcome>);

/// The tasks with these ids: their numbers, the locked rows of those that are live, and how the others
/// ended, which is held as well. A task may come back to life (by a retry) or go while we wait for its row;
/// then it is looked for again. Refuses if one of those is in progress that may not be.
pub(crate) fn lock_any(
    ids: &[&str],
    idle: &[Idle],
    strength: LockStrength,
    of_settled: LockStrength,
) -> Result<Found> {
    loop {
        let (found, rows) = lock_by_id_idle(ids, idle, strength)?;
        let rest: Vec<TaskNo> = found.values().copied().filter(|n| !rows.contains_key(n)).collect();
        if rest.is_empty() {
            return Ok((found, rows, HashMap::new()));
        }
        let ended = hold_outcomes(&rest, of_settled);
        // The end of a task that was replaced while we waited for it is still there to be read, and the id another's.
        if ended.len() == rest.len() && numbers::by_id(ids) == found {
            return Ok((found, rows, ended));
        }
        check_for_interrupts();
    }
}
