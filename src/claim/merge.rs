//! Merge by key: of the tasks that share a key and a group only one runs at a time, and those that were
//! ready when it was granted ride on it and share its end.
//!
//! `merge_key` has one row per key, made when the first task with the key is inserted. Its holder is the
//! task that runs. Riders are parked under the holder, later ones under the key; see [`super::gates`] for
//! why none is stranded.

use pgrx::pg_sys::{INT8ARRAYOID, INT8OID, TEXTARRAYOID, TEXTOID};

use crate::pg::session::{assign_transaction_id, check_for_interrupts};
use crate::pg::statement::{Statement, args};
use crate::settle::Ending;
use crate::state::Cause;
use crate::store::parked::{self, Parked, Reason};
use crate::store::ready::{self, Freed};
use crate::wake;

static MAKE: Statement = Statement::new(
    c"INSERT INTO taskq.merge_key (group_id, key)
      SELECT DISTINCT u.group_id, u.key FROM unnest($1, $2) AS u(group_id, key)
       WHERE NOT EXISTS (SELECT FROM taskq.merge_key m WHERE m.group_id = u.group_id AND m.key = u.key OFFSET 0)
       ORDER BY 1, 2
      ON CONFLICT (group_id, key) DO NOTHING",
    &[TEXTARRAYOID, TEXTARRAYOID],
);
static KEEP: Statement = Statement::new(
    c"SELECT m.key FROM taskq.merge_key m
       WHERE (m.group_id, m.key) IN (SELECT u.group_id, u.key FROM unnest($1, $2) AS u(group_id, key))
       FOR KEY SHARE",
    &[TEXTARRAYOID, TEXTARRAYOID],
);

/// Makes the rows of the keys of tasks that are being inserted, and keeps them from being tidied away
/// before this transaction ends.
pub(crate) fn make_keys(keys: &[(String, String)]) {
    let (groups, names): (Vec<String>, Vec<String>) = keys.iter().cloned().unzip();
    // A claim or a return that has changed the holder of a key does not conflict with the look; it would
    // with an insert that finds the row. So a row is inserted only where none is seen.
    while (KEEP.execute(args![groups.clone(), names.clone()]) as usize) < keys.len() {
        check_for_interrupts();
        MAKE.execute(args![groups.clone(), names.clone()]);
    }
}

/// What trying to take a key came to.
pub(super) enum Taken {
    /// Another task with the key runs; its row is locked against the end of that.
    Busy,
    /// Somebody is changing the row.
    Locked,
    /// The key is the task's now.
    Ours,
}

static LOOK: Statement = Statement::new(
    c"SELECT m.holder_no FROM taskq.merge_key m WHERE m.group_id = $1 AND m.key = $2
         FOR NO KEY UPDATE SKIP LOCKED",
    &[TEXTOID, TEXTOID],
);
static TAKE: Statement = Statement::new(
    c"UPDATE taskq.merge_key m SET holder_no = $3 WHERE m.group_id = $1 AND m.key = $2",
    &[TEXTOID, TEXTOID, INT8OID],
);
static MARK: Statement =
    Statement::new(c"UPDATE taskq.run r SET keyed = true WHERE r.task_no = $1", &[INT8OID]);

/// Takes a key for a task that was granted in this transaction.
pub(super) fn take(group_id: &str, key: &str, task_no: i64) -> Taken {
    let Some(holder) = LOOK.first(args![group_id, key], |row| row.get::<i64>(1)) else {
        return Taken::Locked;
    };
    if holder.is_some() {
        return Taken::Busy;
    }
    TAKE.execute(args![group_id, key, task_no]);
    MARK.execute(args![task_no]);
    Taken::Ours
}

/// Takes a key for a task whose actor holds on to it after its deadline, if no other has it.
pub(crate) fn take_alone(group_id: &str, key: &str, task_no: i64) -> bool {
    matches!(take(group_id, key, task_no), Taken::Ours)
}

static RIDERS: Statement = Statement::new(
    c"WITH riders AS (
        DELETE FROM taskq.run d
         WHERE d.ctid = ANY (ARRAY(
                 SELECT r.ctid FROM taskq.task t
                  CROSS JOIN LATERAL (SELECT r.ctid FROM taskq.run r
                                       WHERE r.task_no = t.task_no AND r.grantable AND r.nonce = 0
                                         FOR UPDATE SKIP LOCKED) AS r
                  WHERE t.merge_key = $2 AND COALESCE(t.group_id, '') = $1))
        RETURNING d.task_no, d.position, d.tries, d.failures, d.dependencies, d.action_no)
      SELECT r.task_no, r.position, r.tries, r.failures, r.dependencies, r.action_no FROM riders AS r",
    &[TEXTOID, TEXTOID],
);

/// Lets everything that is ready with this key ride on the task that was just granted. What somebody holds just now, to
/// grant it or to attach a dependency to it, is not waited for, and runs later.
pub(super) fn gather_riders(group_id: &str, key: &str, leader: i64) {
    assign_transaction_id();
    let (riders, actions): (Vec<Parked>, Vec<i32>) = RIDERS
        .query(args![group_id, key], |row| {
            let freed = Freed {
                task_no: row.need(1),
                tries: row.need(3),
                failures: row.need(4),
                dependencies: row.need(5),
                not_before: None,
            };
            (Parked { freed, position: row.need(2), reason: Reason::Rides(leader) }, row.need::<i32>(6))
        })
        .into_iter()
        .unzip();
    // Of other actions, too, whose waiters pass over them until this grant is committed or rolled back.
    wake::taken(actions.into_iter());
    parked::park(&riders);
}

static RELEASE: Statement = Statement::new(
    c"UPDATE taskq.merge_key m SET holder_no = NULL WHERE m.holder_no = ANY ($1) RETURNING m.group_id, m.key",
    &[INT8ARRAYOID],
);

/// Frees the keys of tasks whose performance has ended: what is parked under them is ready again, at the
/// end of its priority. The row of a key is locked first, so that whoever is parking under it is seen; then all that
/// is parked under the keys or rides on the holders, in one go, in the order in which whoever names these tasks locks
/// them.
fn release(holders: &[i64]) {
    let keys: Vec<(String, String)> =
        RELEASE.query(args![holders], |row| (row.need::<String>(1), row.need::<String>(2)));
    parked::lock(holders, &keys);
    for (group_id, key) in keys {
        ready::make_ready(&parked::release(&Reason::Key(group_id, key)));
    }
}

/// The tasks that held keys have settled: the endings of those that rode on them, which are theirs.
pub(crate) fn settled(holders: &[Ending]) -> Vec<Ending> {
    let task_nos: Vec<i64> = holders.iter().map(|e| e.task_no).collect();
    release(&task_nos);
    let mut endings = Vec::new();
    for holder in holders {
        for rider in parked::release(&Reason::Rides(holder.task_no)) {
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
}

static LOCK_UNUSED: Statement = Statement::new(
    c"SELECT m.group_id, m.key FROM taskq.merge_key m
       WHERE m.holder_no IS NULL
         AND (m.group_id, m.key) IN (SELECT u.group_id, u.key FROM unnest($1, $2) AS u(group_id, key))
         FOR UPDATE SKIP LOCKED",
    &[TEXTARRAYOID, TEXTARRAYOID],
);
/// With a snapshot taken after the rows were locked: whoever was inserting a task with the key held the row
/// until its commit.
static TIDY: Statement = Statement::new(
    c"DELETE FROM taskq.merge_key m
       WHERE (m.group_id, m.key) IN (SELECT u.group_id, u.key FROM unnest($1, $2) AS u(group_id, key))
         AND NOT EXISTS (SELECT FROM taskq.task t
                          WHERE t.merge_key = m.key AND COALESCE(t.group_id, '') = m.group_id OFFSET 0)",
    &[TEXTARRAYOID, TEXTARRAYOID],
);

/// Removes the rows of keys that no task has any more. One that is being used is locked and left; the
/// next task that goes tries again.
pub(crate) fn tidy(keys: &[(String, String)]) {
    if keys.is_empty() {
        return;
    }
    let (groups, names): (Vec<String>, Vec<String>) = keys.iter().cloned().unzip();
    let (groups, names): (Vec<String>, Vec<String>) = LOCK_UNUSED
        .query(args![groups, names], |row| (row.need::<String>(1), row.need::<String>(2)))
        .into_iter()
        .unzip();
    if !groups.is_empty() {
        TIDY.execute(args![groups, names]);
    }
}
