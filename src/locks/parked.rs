//! Locking parked tasks: those that ride on others, and those under a reason.

use std::collections::HashSet;

use super::forms::LockStrength;
use super::order::{self, Rank};
use crate::number::TaskNo;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::Statement;
use crate::store::reason::MergeKey;

static UNDER: Statement<(&[TaskNo], &[&str], &[&str], &[&str]), TaskNo> = Statement::new(
    c"SELECT p.task_no FROM taskq.parked p WHERE p.kind = 'm' AND p.leader_no = ANY ($1)
       UNION ALL
      SELECT p.task_no
        FROM unnest($2, $3, $4) AS u(action, name, key)
       CROSS JOIN LATERAL (SELECT p.task_no FROM taskq.parked p
                            WHERE p.kind <> 'm' AND p.name = u.name AND p.key = u.key AND p.action = u.action
                           OFFSET 0) AS p",
);

static LOCK_PARKED: Statement<&[TaskNo]> =
    Statement::new(c"SELECT FROM taskq.parked p WHERE p.task_no = ANY ($1) ORDER BY p.task_no FOR UPDATE");

static LOCK_PARKED_IF_FREE: Statement<&[TaskNo], TaskNo> =
    Statement::new(c"SELECT p.task_no FROM taskq.parked p WHERE p.task_no = ANY ($1) FOR UPDATE SKIP LOCKED");

static STILL_PARKED: Statement<&[TaskNo]> =
    Statement::new(c"SELECT FROM taskq.parked p WHERE p.task_no = ANY ($1)");

/// Locks what rides on these tasks or is parked under these keys, in the order of numbers. Nothing is
/// added meanwhile: the caller has removed the tasks from `run` or has them locked there, and has locked the rows of the keys.
///
/// A restartable call that names some of them itself has those already. It does not wait for the others,
/// whose holders may wait for its own: it begins anew, with all of them.
pub(crate) fn lock(leaders: &[TaskNo], keys: &[MergeKey]) {
    let (actions, groups, keys) = MergeKey::columns(keys.iter());
    let task_nos = UNDER.query((leaders, actions, groups, keys));
    if task_nos.is_empty() {
        return;
    }
    if order::may_wait(Rank::Live) {
        LOCK_PARKED.execute(task_nos);
        return;
    }
    let free: HashSet<TaskNo> = LOCK_PARKED_IF_FREE.query(task_nos.as_slice()).into_iter().collect();
    let missing: Vec<TaskNo> = task_nos.iter().copied().filter(|n| !free.contains(n)).collect();
    if !missing.is_empty() && STILL_PARKED.execute(missing) > 0 {
        order::restart_with_live(&task_nos, LockStrength::Update);
    }
}

static OF_GROUP: Statement<&str, TaskNo> = Statement::new(
    c"SELECT p.task_no FROM taskq.parked p WHERE p.kind = 'g' AND p.kind <> 'm' AND p.name = $1",
);

/// Locks what is parked under a group, in the order of numbers, as calls do that name such tasks. The caller has locked the row of
/// the group: nothing is added meanwhile.
pub(crate) fn lock_group(group: &str) {
    assign_transaction_id();
    LOCK_PARKED.execute(OF_GROUP.query(group));
}
