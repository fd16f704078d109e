//! Merge by key: of the tasks that share a key, an action and a group only one runs at a time, and those that were ready
//! when it was granted ride on it and share its end.
//!
//! `merge_key` has one row per key, made when the first task with the key is inserted. Its holder is the task that runs.
//! Riders are parked under the holder, later ones under the key; see [`super::gates`] for why none is stranded.
//!
//! **The key comes before the entries.** A claim locks the row of a key before it touches an entry that has it: the
//! statements that grant ask [`taskq_has_its_key`] of each such entry right before they lock it, and pass over it if
//! somebody else has the key. So whoever finds a key free and takes it has all entries with it to himself, but for those
//! that somebody is changing by name: none is in the hands of another claim at that moment. He lets all of them ride that
//! were ready when he looked, also those whose deadline had passed. What comes later finds the key taken.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use pgrx::pg_sys::{INT4OID, INT8ARRAYOID, INT8OID, TEXTARRAYOID};
use pgrx::prelude::*;

use super::Grant;
use crate::flow::actions::try_limits;
use crate::pg::clock::Time;
use crate::pg::session::{assign_transaction_id, check_for_interrupts};
use crate::pg::statement::{Statement, args};
use crate::settle::{Ending, settle};
use crate::state::{Cause, Outcome};
use crate::store::aside;
use crate::store::merge_key::MergeKey;
use crate::store::parked::{self, Parked, Reason};
use crate::store::ready::{self, Freed};
use crate::wake;

static MAKE: Statement = Statement::new(
    c"INSERT INTO taskq.merge_key (action, group_id, key)
      SELECT DISTINCT u.action, u.group_id, u.key FROM unnest($1, $2, $3) AS u(action, group_id, key)
       WHERE NOT EXISTS (SELECT FROM taskq.merge_key m
                          WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key OFFSET 0)
       ORDER BY 1, 2, 3
      ON CONFLICT (action, group_id, key) DO NOTHING",
    &[TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID],
);
static KEEP: Statement = Statement::new(
    c"SELECT FROM unnest($1, $2, $3) AS u(action, group_id, key)
       CROSS JOIN LATERAL (SELECT FROM taskq.merge_key m
                            WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key
                              FOR KEY SHARE) AS m",
    &[TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID],
);

/// Makes the rows of the keys of tasks that are being inserted, and keeps them from being tidied away
/// before this transaction ends.
pub(crate) fn make_keys(keys: &[MergeKey]) {
    let columns = MergeKey::columns(keys.iter());
    // A claim or a return that has changed the holder of a key does not conflict with the look; it would
    // with an insert that finds the row. So a row is inserted only where none is seen.
    while (KEEP.execute(&columns) as usize) < keys.len() {
        check_for_interrupts();
        MAKE.execute(&columns);
    }
}

static LOCK_ITS_KEY: Statement = Statement::new(
    c"SELECT FROM (SELECT a.name, COALESCE(t.group_id, '') AS group_id, t.merge_key
                     FROM taskq.task t, taskq.action a
                    WHERE t.task_no = $1 AND a.action_no = $2 OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT FROM taskq.merge_key m
                            WHERE m.action = t.name AND m.group_id = t.group_id AND m.key = t.merge_key
                              FOR NO KEY UPDATE SKIP LOCKED) AS m",
    &[INT8OID, INT4OID],
);

thread_local! {
    /// Tasks whose keys this claim has locked, with their actions, and which it has not taken so far.
    static LOCKED_FOR: RefCell<HashMap<i64, i32>> = RefCell::default();
    /// Keys that somebody else had locked: the claim passes over what has them without asking again.
    static PASSED: RefCell<HashSet<(i32, i64)>> = RefCell::default();
}

/// `taskq._has_its_key(task_no bigint, action_no integer, key_hash bigint) -> boolean`: locks the row of the task's key
/// for this transaction; `false` if somebody else has it locked. Waits for nobody.
#[pg_extern(sql = "")]
fn taskq_has_its_key(task_no: i64, action_no: i32, key_hash: i64) -> bool {
    if PASSED.with_borrow(|passed| passed.contains(&(action_no, key_hash))) {
        return false;
    }
    let locked = LOCK_ITS_KEY.execute(args![task_no, action_no]) > 0;
    if locked {
        LOCKED_FOR.with_borrow_mut(|tasks| tasks.insert(task_no, action_no));
    } else {
        PASSED.with_borrow_mut(|passed| passed.insert((action_no, key_hash)));
    }
    locked
}

/// To be called at the beginning of a claim.
pub(super) fn begin() {
    LOCKED_FOR.with_borrow_mut(HashMap::clear);
    PASSED.with_borrow_mut(HashSet::clear);
}

/// The claim has these entries, and looks after them.
pub(super) fn taken(grants: &[Grant]) {
    LOCKED_FOR.with_borrow_mut(|tasks| {
        if !tasks.is_empty() {
            for grant in grants {
                tasks.remove(&grant.task_no);
            }
        }
    });
}

/// To be called at the end of a claim. Others pass over all entries with a key that is locked. If the entry for which it
/// was locked was not to be had after all, somebody else looks once this transaction has ended.
pub(super) fn end() {
    for action_no in LOCKED_FOR.take().into_values() {
        wake::ready(action_no);
    }
}

/// Of each of the keys, by its place, the holder.
static LOOK: Statement = Statement::new(
    c"SELECT u.n::integer, m.holder_no
        FROM unnest($1, $2, $3) WITH ORDINALITY AS u(action, group_id, key, n)
       CROSS JOIN LATERAL (SELECT m.holder_no FROM taskq.merge_key m
                            WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key
                              FOR NO KEY UPDATE SKIP LOCKED) AS m",
    &[TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID],
);
static TAKE: Statement = Statement::new(
    c"UPDATE taskq.merge_key m SET holder_no = u.task_no
        FROM unnest($1, $2, $3, $4) AS u(action, group_id, key, task_no)
       WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key",
    &[TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID],
);
static MARK: Statement =
    Statement::new(c"UPDATE taskq.run r SET keyed = true WHERE r.task_no = ANY ($1)", &[INT8ARRAYOID]);

/// Those of the keys that no task has are taken for these; returns them. The others are locked against the end of the
/// task that has them, or locked by somebody else.
fn take(wanted: &BTreeMap<MergeKey, i64>) -> BTreeMap<MergeKey, i64> {
    let all: Vec<(&MergeKey, &i64)> = wanted.iter().collect();
    let free: BTreeMap<MergeKey, i64> = LOOK
        .query(&MergeKey::columns(wanted.keys()), |row| {
            let (key, task_no) = all[row.need::<i32>(1) as usize - 1];
            row.get::<i64>(2).is_none().then(|| (key.clone(), *task_no))
        })
        .into_iter()
        .flatten()
        .collect();
    if !free.is_empty() {
        let holders: Vec<i64> = free.values().copied().collect();
        TAKE.execute(&[&MergeKey::columns(free.keys())[..], args![holders.as_slice()]].concat());
        MARK.execute(args![holders]);
    }
    free
}

/// Takes keys for entries that this claim has taken, all of whose keys it has locked; those that were ready with them
/// ride along. Returns the keys that were free.
pub(super) fn lead(wanted: &BTreeMap<MergeKey, i64>, now: Time) -> BTreeMap<MergeKey, i64> {
    let leaders = take(wanted);
    if !leaders.is_empty() {
        gather_riders(&leaders, now);
    }
    leaders
}

/// Takes a key for a task whose actor holds on to it after its deadline, if no other has it.
pub(crate) fn take_alone(key: &MergeKey, task_no: i64) -> bool {
    !take(&BTreeMap::from([(key.clone(), task_no)])).is_empty()
}

/// Everything that is ready with these keys, as far as it can be removed: nobody attaches a dependent to it.
static RIDERS: Statement = Statement::new(
    c"WITH ready AS MATERIALIZED (
        SELECT u.leader_no, r.task_no, r.position, r.tries, r.failures, r.dependencies
          FROM unnest($1, $2, $3, $4) AS u(action, group_id, key, leader_no)
         CROSS JOIN LATERAL (
               SELECT r.task_no, r.position, r.tries, r.failures, r.dependencies FROM taskq.run r
                WHERE r.key_hash = taskq._key_hash(u.group_id, u.key) AND r.grantable
                  AND (SELECT t.merge_key = u.key AND COALESCE(t.group_id, '') = u.group_id AND a.name = u.action
                         FROM taskq.task t, taskq.action a
                        WHERE t.task_no = r.task_no AND a.action_no = t.action_no)
                  FOR UPDATE SKIP LOCKED) AS r),
      gone AS (DELETE FROM taskq.run d USING ready AS r WHERE d.task_no = r.task_no)
      SELECT r.leader_no, r.task_no, r.position, r.tries, r.failures, r.dependencies FROM ready AS r",
    &[TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID],
);
/// The others stay where they are, under their leaders and no token.
static RIDERS_ASIDE: Statement = Statement::new(
    c"WITH ready AS MATERIALIZED (
        SELECT u.leader_no, r.task_no
          FROM unnest($1, $2, $3, $4) AS u(action, group_id, key, leader_no)
         CROSS JOIN LATERAL (
               SELECT r.task_no FROM taskq.run r
                WHERE r.key_hash = taskq._key_hash(u.group_id, u.key) AND r.grantable
                  AND (SELECT t.merge_key = u.key AND COALESCE(t.group_id, '') = u.group_id AND a.name = u.action
                         FROM taskq.task t, taskq.action a
                        WHERE t.task_no = r.task_no AND a.action_no = t.action_no)
                  FOR NO KEY UPDATE SKIP LOCKED) AS r)
      UPDATE taskq.run d
         SET grantable = false, aside = -r.leader_no, nonce = 0, deadline = 'infinity', granted_at = NULL,
             actor_id = NULL
        FROM ready AS r WHERE d.task_no = r.task_no AND d.grantable",
    &[TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID],
);

/// Lets everything that is ready with these keys ride on the tasks that were just granted; the token of a late actor is
/// void from then on. What somebody is changing just now is not waited for, and runs later.
fn gather_riders(leaders: &BTreeMap<MergeKey, i64>, now: Time) {
    assign_transaction_id();
    let holders: Vec<i64> = leaders.values().copied().collect();
    let columns = [&MergeKey::columns(leaders.keys())[..], args![holders]].concat();
    let riders: Vec<Parked> = RIDERS.query(&columns, |row| Parked {
        freed: Freed {
            task_no: row.need(2),
            tries: row.need(4),
            failures: row.need(5),
            dependencies: row.need(6),
            not_before: None,
        },
        position: row.need(3),
        reason: Reason::Rides(row.need(1)),
    });
    RIDERS_ASIDE.execute(&columns);
    park_riders(riders, now);
}

/// Parks riders under their leaders. One whose tries are used up has none left to share, and is aborted.
pub(super) fn park_riders(riders: Vec<Parked>, now: Time) {
    let tried: Vec<i64> = riders.iter().filter(|r| r.freed.tries > 0).map(|r| r.freed.task_no).collect();
    let limits = if tried.is_empty() { HashMap::new() } else { try_limits(&tried) };
    let (exhausted, riders): (Vec<Parked>, Vec<Parked>) = riders.into_iter().partition(|rider| {
        let most = limits.get(&rider.freed.task_no).and_then(|limit| limit.max_tries);
        most.is_some_and(|most| rider.freed.tries >= most)
    });
    parked::park(&riders);
    if !exhausted.is_empty() {
        settle(exhausted.into_iter().map(|rider| used_up(&rider.freed)).collect(), now);
    }
}

fn used_up(freed: &Freed) -> Ending {
    Ending {
        task_no: freed.task_no,
        outcome: Outcome::Aborted,
        cause: Cause::Deadline,
        status: Some(format!("the deadline passed on try {}, and there is no other", freed.tries)),
        result: None,
        granted_at: None,
        actor_id: None,
        tries: freed.tries,
        failures: freed.failures,
        dependencies: freed.dependencies,
        signals: freed.dependencies,
        keyed: false,
        leader: None,
    }
}

static RELEASE: Statement = Statement::new(
    c"UPDATE taskq.merge_key m SET holder_no = NULL WHERE m.holder_no = ANY ($1)
      RETURNING m.action, m.group_id, m.key",
    &[INT8ARRAYOID],
);
/// Actions with entries that are ready with these keys: met by claims that could not lock the key, and left.
static WAITING: Statement = Statement::new(
    c"SELECT DISTINCT r.action_no FROM unnest($1, $2, $3) AS u(action, group_id, key)
       CROSS JOIN LATERAL (SELECT r.action_no FROM taskq.run r
                            WHERE r.key_hash = taskq._key_hash(u.group_id, u.key) AND r.grantable LIMIT 1) AS r",
    &[TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID],
);

/// Frees the keys of tasks whose performance has ended: what is parked under them is ready again, at the
/// end of its priority. The row of a key is locked first, so that whoever is parking under it is seen; then all that
/// is parked under the keys or rides on the holders, in one go, in the order in which whoever names these tasks locks
/// them.
fn release(holders: &[i64]) {
    let keys: Vec<MergeKey> = RELEASE.query(args![holders], |row| MergeKey::read(row, 1));
    WAITING
        .query(&MergeKey::columns(keys.iter()), |row| row.need::<i32>(1))
        .into_iter()
        .for_each(wake::ready);
    parked::lock(holders, &keys);
    aside::release(&keys.iter().map(aside::key).collect::<Vec<_>>());
    for key in keys {
        ready::make_ready(&parked::release(&Reason::Key(key)));
    }
}

/// The tasks that held keys have settled: the endings of those that rode on them, which are theirs.
pub(crate) fn settled(holders: &[Ending]) -> Vec<Ending> {
    let task_nos: Vec<i64> = holders.iter().map(|e| e.task_no).collect();
    release(&task_nos);
    let mut endings = Vec::new();
    let mut aside = aside::riders(&task_nos);
    for holder in holders {
        let parked = parked::release(&Reason::Rides(holder.task_no));
        for rider in parked.into_iter().chain(aside.remove(&holder.task_no).unwrap_or_default()) {
            endings.push(Ending {
                task_no: rider.task_no,
                cause: Cause::Merged,
                granted_at: None,
                actor_id: None,
                tries: rider.tries,
                failures: rider.failures,
                dependencies: rider.dependencies,
                signals: rider.dependencies,
                keyed: false,
                leader: Some(holder.task_no),
                ..holder.clone()
            });
        }
    }
    endings
}

/// The performances of tasks that held keys have ended without settling them: their riders are ready again.
pub(crate) fn given_back(holders: &[i64]) {
    if holders.is_empty() {
        return;
    }
    release(holders);
    for holder in holders {
        ready::make_ready(&parked::release(&Reason::Rides(*holder)));
    }
    aside::release(&holders.iter().map(|holder| aside::rides(*holder)).collect::<Vec<_>>());
}

static LOCK_UNUSED: Statement = Statement::new(
    c"SELECT m.action, m.group_id, m.key
        FROM unnest($1, $2, $3) AS u(action, group_id, key)
       CROSS JOIN LATERAL (SELECT m.action, m.group_id, m.key FROM taskq.merge_key m
                            WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key
                              AND m.holder_no IS NULL
                              FOR UPDATE SKIP LOCKED) AS m",
    &[TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID],
);
/// With a snapshot taken after the rows were locked: whoever was inserting a task with the key held the row
/// until its commit.
static TIDY: Statement = Statement::new(
    c"DELETE FROM taskq.merge_key m
       USING unnest($1, $2, $3) AS u(action, group_id, key)
       WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key
         AND NOT EXISTS (SELECT FROM taskq.task t, taskq.action a
                          WHERE t.merge_key = u.key AND COALESCE(t.group_id, '') = u.group_id
                            AND a.action_no = t.action_no AND a.name = u.action OFFSET 0)",
    &[TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID],
);

/// Removes the rows of keys that no task has any more. One that is being used is locked and left; the
/// next task that goes tries again.
pub(crate) fn tidy(keys: &[MergeKey]) {
    if keys.is_empty() {
        return;
    }
    let unused: Vec<MergeKey> =
        LOCK_UNUSED.query(&MergeKey::columns(keys.iter()), |row| MergeKey::read(row, 1));
    if !unused.is_empty() {
        TIDY.execute(&MergeKey::columns(unused.iter()));
    }
}
