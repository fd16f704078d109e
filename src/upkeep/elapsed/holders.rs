//! The end of a performance that holds a merge key, without waiting for a lock.
//!
//! It changes the row of the key and removes what is parked under it or rides on the task. A claim may have locked the
//! row of the key, to park something under it; a call that inserts a task which waits for one of the parked may have
//! locked that one. Both can be in transactions that stay open. So all of it is locked first, where that needs no
//! waiting. If it cannot be locked as a whole, it is given up again, so that a late return by the worker does not wait
//! for us in turn.

use std::collections::HashSet;

use super::overdue::LOCK_OVERDUE_HOLDERS;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::pg::subtransaction;
use crate::store::live::Live;
use crate::store::live_row::InRun;
use crate::store::reason::MergeKey;

static LOCK_KEYS: Statement<&[TaskNo], (TaskNo, MergeKey)> = Statement::new(
    c"SELECT m.holder_no, m.action, m.group_id, m.key FROM taskq.merge_key m WHERE m.holder_no = ANY ($1)
         FOR NO KEY UPDATE SKIP LOCKED",
);
/// What is parked on behalf of each holder. Nothing comes to it any more: that takes the row of the key, or the task.
static PARKED: Statement<(&[TaskNo], &[&str], &[&str], &[&str]), (TaskNo, TaskNo)> = Statement::new(
    c"SELECT p.leader_no, p.task_no FROM taskq.parked p WHERE p.kind = 'm' AND p.leader_no = ANY ($1)
       UNION ALL
      SELECT u.holder_no, p.task_no
        FROM unnest($1, $2, $3, $4) AS u(holder_no, action, name, key)
       CROSS JOIN LATERAL (SELECT p.task_no FROM taskq.parked p
                            WHERE p.kind <> 'm' AND p.name = u.name AND p.key = u.key AND p.action = u.action
                           OFFSET 0) AS p",
);
static LOCK_PARKED: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT p.task_no FROM taskq.parked p WHERE p.task_no = ANY ($1) FOR UPDATE SKIP LOCKED");

/// How often those that cannot be locked are skipped, before all are left alone.
const ROUNDS: usize = 3;

/// Locks those of the overdue holders of keys whose rows and keys, with what is parked under these or rides, no other transaction has
/// locked.
pub(super) fn lock(mut task_nos: Vec<TaskNo>, now: Time) -> Vec<Live> {
    for _ in 0..ROUNDS {
        if task_nos.is_empty() {
            break;
        }
        match subtransaction::all_or_nothing(|| try_lock(&task_nos, now)) {
            Ok(locked) => return locked,
            Err(busy) => task_nos.retain(|task_no| !busy.contains(task_no)),
        }
    }
    Vec::new()
}

/// All of them, or which of them others have in hand.
fn try_lock(task_nos: &[TaskNo], now: Time) -> Result<Vec<Live>, HashSet<TaskNo>> {
    let locked = LOCK_OVERDUE_HOLDERS.map((task_nos, now), |InRun(live)| live);
    let mut busy: HashSet<TaskNo> = task_nos.iter().copied().collect();
    locked.iter().for_each(|live| {
        busy.remove(&live.task_no);
    });
    let holders: Vec<TaskNo> = locked.iter().map(|live| live.task_no).collect();
    let mut without_key: HashSet<TaskNo> = holders.iter().copied().collect();
    let (mut with_key, mut keys) = (Vec::new(), Vec::new());
    for (holder, key) in LOCK_KEYS.query(holders) {
        without_key.remove(&holder);
        with_key.push(holder);
        keys.push(key);
    }
    busy.extend(without_key);
    let (actions, groups, keys) = MergeKey::columns(keys.iter());
    let parked = PARKED.query((with_key, actions, groups, keys));
    if !parked.is_empty() {
        let all: Vec<TaskNo> = parked.iter().map(|(_, task_no)| *task_no).collect();
        let ours: HashSet<TaskNo> = LOCK_PARKED.query(all).into_iter().collect();
        busy.extend(parked.iter().filter(|(_, n)| !ours.contains(n)).map(|(holder, _)| *holder));
    }
    if busy.is_empty() { Ok(locked) } else { Err(busy) }
}
