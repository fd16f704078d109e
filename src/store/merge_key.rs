//! The table `merge_key`: one row per key, made when a task is inserted and there is none. Its holder is the task that runs, if
//! one does.

use std::collections::BTreeMap;

use crate::number::TaskNo;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::store::reason::MergeKey;
use crate::wake;

/// [`MergeKey::columns`].
type Keys = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

static MAKE: Statement<Keys> = Statement::new(
    c"INSERT INTO taskq.merge_key (action, group_id, key)
      SELECT DISTINCT u.action, u.group_id, u.key FROM unnest($1, $2, $3) AS u(action, group_id, key)
       WHERE NOT EXISTS (SELECT FROM taskq.merge_key m
                          WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key OFFSET 0)
       ORDER BY 1, 2, 3
      ON CONFLICT (action, group_id, key) DO NOTHING",
);
static KEEP: Statement<Keys> = Statement::new(
    c"SELECT FROM unnest($1, $2, $3) AS u(action, group_id, key)
       CROSS JOIN LATERAL (SELECT FROM taskq.merge_key m
                            WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key
                              FOR KEY SHARE) AS m",
);

/// Makes the rows of the keys of tasks that are being inserted, and keeps them from being tidied away
/// before this transaction ends.
pub(crate) fn make_keys(keys: &[MergeKey]) {
    let columns = || MergeKey::columns(keys.iter());
    // A claim or a return that has changed the holder of a key does not conflict with the look; it would
    // with an insert that finds the row. So a row is inserted only where none is seen.
    while (KEEP.execute(columns()) as usize) < keys.len() {
        check_for_interrupts();
        MAKE.execute(columns());
    }
}

/// Of each of the keys, by its place, the holder.
static LOCK_AND_READ_HOLDERS: Statement<Keys, (i32, Option<TaskNo>)> = Statement::new(
    c"SELECT u.n::integer, m.holder_no
        FROM unnest($1, $2, $3) WITH ORDINALITY AS u(action, group_id, key, n)
       CROSS JOIN LATERAL (SELECT m.holder_no FROM taskq.merge_key m
                            WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key
                              FOR NO KEY UPDATE SKIP LOCKED) AS m",
);
static SET_HOLDERS: Statement<(&[&str], &[&str], &[&str], &[TaskNo])> = Statement::new(
    c"UPDATE taskq.merge_key m SET holder_no = u.task_no
        FROM unnest($1, $2, $3, $4) AS u(action, group_id, key, task_no)
       WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key",
);
static MARK_KEYED: Statement<&[TaskNo]> =
    Statement::new(c"UPDATE taskq.run r SET keyed = true WHERE r.task_no = ANY ($1)");

/// Those of the keys that no task has are taken for these; returns them. The others are locked against the end of the
/// task that has them, or another transaction has locked them.
pub(crate) fn take(wanted: &BTreeMap<MergeKey, TaskNo>) -> BTreeMap<MergeKey, TaskNo> {
    let all: Vec<(&MergeKey, &TaskNo)> = wanted.iter().collect();
    let free: BTreeMap<MergeKey, TaskNo> = LOCK_AND_READ_HOLDERS
        .map(MergeKey::columns(wanted.keys()), |(n, holder)| {
            let (key, task_no) = all[n as usize - 1];
            holder.is_none().then(|| (key.clone(), *task_no))
        })
        .into_iter()
        .flatten()
        .collect();
    if !free.is_empty() {
        let holders: Vec<TaskNo> = free.values().copied().collect();
        let (actions, groups, keys) = MergeKey::columns(free.keys());
        SET_HOLDERS.execute((actions, groups, keys, holders.as_slice()));
        MARK_KEYED.execute(holders);
    }
    free
}

/// Takes a key for a task whose actor holds on to it after its deadline, if no other has it and its row is not locked.
pub(crate) fn take_alone(key: &MergeKey, task_no: TaskNo) -> bool {
    !take(&BTreeMap::from([(key.clone(), task_no)])).is_empty()
}

static CLEAR_HOLDERS: Statement<&[TaskNo], MergeKey> = Statement::new(
    c"UPDATE taskq.merge_key m SET holder_no = NULL WHERE m.holder_no = ANY ($1)
      RETURNING m.action, m.group_id, m.key",
);
/// Actions with entries that are ready with these keys, as those are that claims have met which could not lock the key.
static WAITING: Statement<Keys, i32> = Statement::new(
    c"SELECT DISTINCT r.action_no FROM unnest($1, $2, $3) AS u(action, group_id, key)
       CROSS JOIN LATERAL (SELECT r.action_no FROM taskq.run r
                            WHERE r.key_hash = taskq._key_hash(u.action, u.group_id, u.key) AND r.grantable LIMIT 1) AS r",
);

/// Frees the keys of tasks whose performance has ended; which these were. Has calls woken for entries that are ready with one of
/// them, one at most for each number of an action.
pub(crate) fn free(holders: &[TaskNo]) -> Vec<MergeKey> {
    let keys = CLEAR_HOLDERS.query(holders);
    WAITING.query(MergeKey::columns(keys.iter())).into_iter().for_each(wake::ready);
    keys
}

static LOCK_UNUSED: Statement<Keys, MergeKey> = Statement::new(
    c"SELECT m.action, m.group_id, m.key
        FROM unnest($1, $2, $3) AS u(action, group_id, key)
       CROSS JOIN LATERAL (SELECT m.action, m.group_id, m.key FROM taskq.merge_key m
                            WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key
                              AND m.holder_no IS NULL
                              FOR UPDATE SKIP LOCKED) AS m",
);
/// With a snapshot taken after the rows were locked: a transaction that was inserting a task with the key
/// held the row until its commit.
static TIDY: Statement<Keys> = Statement::new(
    c"DELETE FROM taskq.merge_key m
       USING unnest($1, $2, $3) AS u(action, group_id, key)
       WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key
         AND NOT EXISTS (SELECT FROM taskq.task t, taskq.action a
                          WHERE t.merge_key = u.key AND COALESCE(t.group_id, '') = u.group_id
                            AND a.action_no = t.action_no AND a.name = u.action OFFSET 0)",
);

/// Removes the rows of keys that no task has any more. One that another transaction has locked is left; the next task
/// with the key that goes tries again.
pub(crate) fn tidy(keys: &[MergeKey]) {
    if keys.is_empty() {
        return;
    }
    let unused = LOCK_UNUSED.query(MergeKey::columns(keys.iter()));
    if !unused.is_empty() {
        TIDY.execute(MergeKey::columns(unused.iter()));
    }
}
