//! The rows of `unique_key`: locked, looked at, pointed to tasks, removed.

use std::collections::{BTreeSet, HashMap, HashSet};

use pgrx::pg_sys::{TEXTARRAYOID, TIMESTAMPTZOID};

use super::decide::Winner;
use super::{Holder, Key, Known, key_of};
use crate::pg::clock::Time;
use crate::pg::statement::{Row, Statement, args};
use crate::spec::{State, TaskSpec};

/// The WHERE makes a row that is there already locked, and not written.
static LOCK: Statement<(&[&str], &[&str], &[i64], Time), i64> = Statement::typed(
    c"INSERT INTO taskq.unique_key AS k (action, key, task_no, since)
      SELECT u.action, u.key, u.task_no, $4 FROM unnest($1, $2, $3) AS u(action, key, task_no)
      ON CONFLICT (action, key) DO UPDATE SET task_no = k.task_no WHERE false
      RETURNING k.task_no",
);

/// Locks the rows of keys, and makes those that are missing; returns the numbers of the rows made.
pub(super) fn lock<'a>(keys: impl Iterator<Item = (&'a Key, i64)>, now: Time) -> HashSet<i64> {
    let (mut actions, mut names, mut task_nos) = (Vec::new(), Vec::new(), Vec::new());
    for ((action, name), task_no) in keys {
        actions.push(action.as_str());
        names.push(name.as_str());
        task_nos.push(task_no);
    }
    LOCK.query((actions, names, task_nos, now)).into_iter().collect()
}

/// Where tasks that keys point to are, in one snapshot: two rows for a key, for the task inserted last with it and for
/// the one behind which that came, each empty behind the key's own columns if there is none. States are the bits of
/// [`State`].
static LOOK: Statement = Statement::new(
    c"SELECT u.action, u.key, k.task_no, k.since, k.not_before,
             t.task_no, t.id, t.unique_until, t.unique_states, t.state, t.held_back
        FROM unnest($1, $2) AS u(action, key)
       CROSS JOIN LATERAL (SELECT k.task_no, k.behind_no, k.since, k.not_before FROM taskq.unique_key k
                            WHERE k.action = u.action AND k.key = u.key OFFSET 0) AS k
       CROSS JOIN LATERAL (VALUES (k.task_no), (k.behind_no)) AS n(task_no)
        LEFT JOIN LATERAL (
             SELECT t.task_no, t.id, t.unique_until, t.unique_states,
                    COALESCE((SELECT CASE s.code WHEN 'c' THEN 16 ELSE 32 END
                                FROM taskq.settled s WHERE s.task_no = t.task_no),
                             (SELECT CASE WHEN r.nonce <> 0 THEN 8 END
                                FROM taskq.run r WHERE r.task_no = t.task_no),
                             (SELECT 1 FROM taskq.blocked w WHERE w.task_no = t.task_no),
                             (SELECT CASE WHEN d.due > $3 THEN 2 END
                                FROM taskq.scheduled d WHERE d.task_no = t.task_no),
                             CASE WHEN h.held_back THEN 2 ELSE 4 END)::smallint AS state,
                    h.held_back
               FROM taskq.task t
              CROSS JOIN LATERAL (
                    SELECT EXISTS (SELECT FROM taskq.workgroup w
                                    WHERE w.name = t.workgroup AND w.not_before > $3 OFFSET 0) AS held_back OFFSET 0) AS h
              WHERE t.task_no = n.task_no AND t.unique_states IS NOT NULL OFFSET 0) AS t ON true",
    &[TEXTARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID],
);

/// What is stored of these keys, whose rows are locked, without the elements of the call.
pub(super) fn look(keys: impl Iterator<Item = Key>, now: Time) -> HashMap<Key, Known> {
    let (actions, names): (Vec<String>, Vec<String>) = keys.unzip();
    let mut found: HashMap<Key, Known> = HashMap::with_capacity(actions.len());
    if actions.is_empty() {
        return found;
    }
    let rows = LOOK.query(args![actions, names, now], |row| {
        ((row.need(1), row.need(2)), Known::new(row.need(3), row.need(4), row.get(5)), holder(row))
    });
    for (key, known, holder) in rows {
        let known = found.entry(key).or_insert(known);
        match holder {
            Some(holder) if holder.task_no == known.points_to => known.holder = Some(holder),
            Some(behind) => known.behind = Some(behind),
            None => {}
        }
    }
    found
}

/// The task of a row of the look; `None` if it is gone.
fn holder(row: Row) -> Option<Holder> {
    Some(Holder {
        task_no: row.get(6)?,
        id: row.need(7),
        until: row.get(8),
        states: row.need(9),
        state: State::from_stored(row.need(10)),
        held_back: row.need(11),
    })
}

static POINT: Statement<(&[&str], &[&str], &[i64], &[i64], &[Time], &[Time])> = Statement::typed(
    c"INSERT INTO taskq.unique_key AS k (action, key, task_no, behind_no, since, not_before)
      SELECT u.action, u.key, u.task_no, u.behind_no, u.since, u.not_before
        FROM unnest($1, $2, $3, $4, $5, $6) AS u(action, key, task_no, behind_no, since, not_before)
      ON CONFLICT (action, key) DO UPDATE
         SET task_no = EXCLUDED.task_no, behind_no = EXCLUDED.behind_no, since = EXCLUDED.since,
             not_before = EXCLUDED.not_before",
);

/// Lets rows that are locked point to new tasks. (A row that the call has removed together with the task that
/// it pointed to is made again.)
pub(super) fn point(pointers: &[(&Key, &Winner, i64)]) {
    if pointers.is_empty() {
        return;
    }
    POINT.execute((
        pointers.iter().map(|(key, ..)| key.0.as_str()).collect::<Vec<_>>(),
        pointers.iter().map(|(key, ..)| key.1.as_str()).collect::<Vec<_>>(),
        pointers.iter().map(|(.., task_no)| *task_no).collect::<Vec<_>>(),
        pointers
            .iter()
            .map(|(_, winner, _)| winner.behind.as_ref().map(|behind| behind.task_no))
            .collect::<Vec<_>>(),
        pointers.iter().map(|(_, winner, _)| winner.since).collect::<Vec<_>>(),
        pointers.iter().map(|(_, winner, _)| winner.not_before).collect::<Vec<_>>(),
    ));
}

/// The number that a row has which was made only to be locked. No task has it.
const NOBODY: i64 = 0;

/// Locks the keys of tasks that are to be inserted later in this call, after other locks: they come first in
/// the global order. `unlock` removes the rows that were made and not used.
pub(crate) fn lock_keys<'a>(
    specs: impl Iterator<Item = &'a TaskSpec>,
    now: Time,
) -> BTreeSet<(String, String)> {
    let keys: BTreeSet<Key> = specs.filter_map(key_of).collect();
    if !keys.is_empty() {
        lock(keys.iter().map(|key| (key, NOBODY)), now);
    }
    keys
}

/// Removes the rows that [`lock_keys`] has made and that no task was inserted for.
pub(crate) fn unlock(keys: &BTreeSet<(String, String)>) {
    release(&keys.iter().map(|key| (key, NOBODY)).collect::<Vec<_>>());
}

static RELEASE: Statement<(&[&str], &[&str], &[i64])> = Statement::typed(
    c"DELETE FROM taskq.unique_key d
       WHERE d.ctid = ANY (ARRAY(
               SELECT k.ctid FROM unnest($1, $2, $3) AS u(action, key, task_no)
                CROSS JOIN LATERAL (SELECT k.ctid FROM taskq.unique_key k
                                     WHERE k.action = u.action AND k.key = u.key AND k.task_no = u.task_no
                                       FOR UPDATE SKIP LOCKED) AS k))",
);

/// Removes rows that point to these numbers. One that somebody has locked is left.
pub(super) fn release(rows: &[(&Key, i64)]) {
    if rows.is_empty() {
        return;
    }
    RELEASE.execute((
        rows.iter().map(|(key, _)| key.0.as_str()).collect::<Vec<_>>(),
        rows.iter().map(|(key, _)| key.1.as_str()).collect::<Vec<_>>(),
        rows.iter().map(|(_, task_no)| *task_no).collect::<Vec<_>>(),
    ));
}

/// Removes the rows of keys that point to tasks that have gone: the key and the number of each.
pub(crate) fn forget(gone: &[((String, String), i64)]) {
    release(&gone.iter().map(|(key, task_no)| (key, *task_no)).collect::<Vec<_>>());
}

/// Rows behind a key that point to tasks that are gone, among the next so many. A number that is gone stays
/// gone; and a row that is seen here was made together with its task, which an insertion under way would not
/// have done yet: not to be called by one.
static LEFT_BEHIND: Statement<(&str, &str), (String, String, i64)> = Statement::typed(
    c"SELECT k.action, k.key, k.task_no
        FROM (SELECT k.action, k.key, k.task_no FROM taskq.unique_key k
               WHERE (k.action, k.key) > ($1, $2) ORDER BY k.action, k.key LIMIT 20) AS k
       WHERE NOT EXISTS (SELECT FROM taskq.task t WHERE t.task_no = k.task_no OFFSET 0)",
);

/// Removes rows that a removal had to leave, among those behind one of the keys of tasks that have just gone.
/// Such keys are spread over all keys, so sooner or later somebody comes past each.
pub(crate) fn tidy(gone: &[((String, String), i64)]) {
    let Some((last, _)) = gone.last() else { return };
    let left: Vec<(Key, i64)> = LEFT_BEHIND
        .map((last.0.as_str(), last.1.as_str()), |(action, key, task_no)| ((action, key), task_no));
    release(&left.iter().map(|(key, task_no)| (key, *task_no)).collect::<Vec<_>>());
}
