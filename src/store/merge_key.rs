//! The table `merge_key`: one row per key, made when the first task with the key is inserted. Its holder is the task that
//! runs.

use std::collections::BTreeMap;

use super::aside;
use super::parked::{self, Reason};
use super::ready;
use crate::number::TaskNo;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Record, Statement};
use crate::wake;

/// What tasks share that are merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MergeKey {
    pub(crate) action: String,
    /// Empty: none.
    pub(crate) group: String,
    pub(crate) key: String,
}

impl MergeKey {
    /// That of a task, if it has one.
    pub(crate) fn of(action: &str, group: Option<&str>, key: Option<&str>) -> Option<Self> {
        let group = group.unwrap_or_default();
        Some(MergeKey { action: action.to_owned(), group: group.to_owned(), key: key?.to_owned() })
    }

    /// For `unnest(…) AS u(action, group_id, key)`.
    pub(crate) fn columns<'a>(
        keys: impl Iterator<Item = &'a MergeKey>,
    ) -> (Vec<&'a str>, Vec<&'a str>, Vec<&'a str>) {
        let (mut actions, mut groups, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            actions.push(key.action.as_str());
            groups.push(key.group.as_str());
            names.push(key.key.as_str());
        }
        (actions, groups, names)
    }
}

/// From three columns: action, group, key.
impl Record for MergeKey {
    type Columns = (String, String, String);

    fn of((action, group, key): Self::Columns) -> Self {
        MergeKey { action, group, key }
    }
}

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
static LOOK: Statement<Keys, (i32, Option<TaskNo>)> = Statement::new(
    c"SELECT u.n::integer, m.holder_no
        FROM unnest($1, $2, $3) WITH ORDINALITY AS u(action, group_id, key, n)
       CROSS JOIN LATERAL (SELECT m.holder_no FROM taskq.merge_key m
                            WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key
                              FOR NO KEY UPDATE SKIP LOCKED) AS m",
);
static TAKE: Statement<(&[&str], &[&str], &[&str], &[TaskNo])> = Statement::new(
    c"UPDATE taskq.merge_key m SET holder_no = u.task_no
        FROM unnest($1, $2, $3, $4) AS u(action, group_id, key, task_no)
       WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key",
);
static MARK: Statement<&[TaskNo]> =
    Statement::new(c"UPDATE taskq.run r SET keyed = true WHERE r.task_no = ANY ($1)");

/// Those of the keys that no task has are taken for these; returns them. The others are locked against the end of the
/// task that has them, or another transaction has locked them.
pub(crate) fn take(wanted: &BTreeMap<MergeKey, TaskNo>) -> BTreeMap<MergeKey, TaskNo> {
    let all: Vec<(&MergeKey, &TaskNo)> = wanted.iter().collect();
    let free: BTreeMap<MergeKey, TaskNo> = LOOK
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
        TAKE.execute((actions, groups, keys, holders.as_slice()));
        MARK.execute(holders);
    }
    free
}

/// Takes a key for a task whose actor holds on to it after its deadline, if no other has it.
pub(crate) fn take_alone(key: &MergeKey, task_no: TaskNo) -> bool {
    !take(&BTreeMap::from([(key.clone(), task_no)])).is_empty()
}

static RELEASE: Statement<&[TaskNo], MergeKey> = Statement::new(
    c"UPDATE taskq.merge_key m SET holder_no = NULL WHERE m.holder_no = ANY ($1)
      RETURNING m.action, m.group_id, m.key",
);
/// Actions with entries that are ready with these keys: met by claims that could not lock the key, and left.
static WAITING: Statement<Keys, i32> = Statement::new(
    c"SELECT DISTINCT r.action_no FROM unnest($1, $2, $3) AS u(action, group_id, key)
       CROSS JOIN LATERAL (SELECT r.action_no FROM taskq.run r
                            WHERE r.key_hash = taskq._key_hash(u.action, u.group_id, u.key) AND r.grantable LIMIT 1) AS r",
);

/// Frees the keys of tasks whose performance has ended: what is parked under them is ready again, at the end of its
/// priority. The row of a key is locked first, so that what a claim is parking under it is seen. Then all that is
/// parked under the keys or rides on the holders is locked in one go, in the order in which calls that name these
/// tasks lock them.
pub(crate) fn release(holders: &[TaskNo]) {
    let keys = RELEASE.query(holders);
    WAITING.query(MergeKey::columns(keys.iter())).into_iter().for_each(wake::ready);
    parked::lock(holders, &keys);
    aside::release(&keys.iter().map(aside::key).collect::<Vec<_>>());
    for key in keys {
        ready::make_ready(&parked::release(&Reason::Key(key)));
    }
}

/// The performances of tasks that held keys have ended without settling them: their riders are ready again.
pub(crate) fn given_back(holders: &[TaskNo]) {
    if holders.is_empty() {
        return;
    }
    release(holders);
    for holder in holders {
        ready::make_ready(&parked::release(&Reason::Rides(*holder)));
    }
    aside::release(&holders.iter().map(|holder| aside::rides(*holder)).collect::<Vec<_>>());
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

/// Removes the rows of keys that no task has any more. One that is being used is locked and left; the
/// next task that goes tries again.
pub(crate) fn tidy(keys: &[MergeKey]) {
    if keys.is_empty() {
        return;
    }
    let unused = LOCK_UNUSED.query(MergeKey::columns(keys.iter()));
    if !unused.is_empty() {
        TIDY.execute(MergeKey::columns(unused.iter()));
    }
}
