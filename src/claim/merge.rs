//! Merge by key: of the tasks that share a key, an action and a group only one runs at a time, and those that were ready
//! when it was granted ride on it and share its end, if it settles.
//!
//! Keys and their holders are in [`merge_key`], riders in [`riders`]: those are parked under the holder, in place or not,
//! later tasks under the key; see [`super::gates`] for why none is stranded.
//!
//! **The key comes before the entries.** A claim locks the row of a key before it touches an entry that has it
//! ([`has_its_key`]), and passes over the entry if another transaction has that row locked. So a claim that finds a key
//! free and takes it has all entries with it to itself, except those that a call is changing by name: none is in the
//! hands of another claim at that moment. It lets those of them ride that were ready when it looked, also those whose
//! deadline had passed; not those whose workgroup is held back. What comes later finds the key taken.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::Grant;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::settle::riders;
use crate::store::merge_key;
use crate::store::reason::MergeKey;
use crate::wake;

static LOCK_ITS_KEY: Statement<(TaskNo, i32)> = Statement::new(
    c"SELECT FROM (SELECT a.name, COALESCE(t.group_id, '') AS group_id, t.merge_key
                     FROM taskq.task t, taskq.action a
                    WHERE t.task_no = $1 AND a.action_no = $2 OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT FROM taskq.merge_key m
                            WHERE m.action = t.name AND m.group_id = t.group_id AND m.key = t.merge_key
                              FOR NO KEY UPDATE SKIP LOCKED) AS m",
);

/// What the claim under way has done with keys.
#[derive(Default)]
struct Keys {
    /// Tasks whose keys it has locked, with their actions, and which it has not taken so far.
    locked_for: HashMap<TaskNo, i32>,
    /// Hashes of keys whose rows were not to be had: the claim skips what has such a key without asking again.
    passed: HashSet<(i32, i64)>,
}

thread_local! {
    static KEYS: RefCell<Keys> = RefCell::default();
}

/// Locks the row of the task's key for this transaction; `false` if another one has it locked, or there is none. Does not wait.
pub(super) fn has_its_key(task_no: TaskNo, action_no: i32, key_hash: i64) -> bool {
    if KEYS.with_borrow(|keys| keys.passed.contains(&(action_no, key_hash))) {
        return false;
    }
    let locked = LOCK_ITS_KEY.execute((task_no, action_no)) > 0;
    KEYS.with_borrow_mut(|keys| {
        if locked {
            keys.locked_for.insert(task_no, action_no);
        } else {
            keys.passed.insert((action_no, key_hash));
        }
    });
    locked
}

/// To be called at the beginning of a claim.
pub(super) fn begin() {
    KEYS.with_borrow_mut(|keys| {
        keys.locked_for.clear();
        keys.passed.clear();
    });
}

/// The claim has these entries, and looks after them.
pub(super) fn taken(grants: &[Grant]) {
    KEYS.with_borrow_mut(|keys| {
        if !keys.locked_for.is_empty() {
            for grant in grants {
                keys.locked_for.remove(&grant.task_no);
            }
        }
    });
}

/// To be called at the end of a claim. Others skip all entries with a key that is locked. If the entry for which it was
/// locked could not be taken after all, another call looks once this transaction has committed.
pub(super) fn end() {
    for action_no in KEYS.take().locked_for.into_values() {
        wake::ready(action_no);
    }
}

/// Takes keys for entries that this claim has taken, all of whose keys it has locked; those that were ready with them
/// ride along. Returns the keys that were free.
pub(super) fn lead(wanted: &BTreeMap<MergeKey, TaskNo>, now: Time) -> BTreeMap<MergeKey, TaskNo> {
    let leaders = merge_key::take(wanted);
    if !leaders.is_empty() {
        riders::gather(&leaders, now);
    }
    leaders
}
