//! Settled tasks go when their retention is over. That frees and deletes nothing else: whoever waited
//! for them has counted them already.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

use super::{STEP, low_ends};
use crate::pg::clock::{self, Time};
use crate::pg::session::in_transaction_block;
use crate::pg::statement::{Statement, sql};
use crate::state::Outcome;
use crate::store::ends::uncounted;
use crate::store::merge_key::{self, MergeKey};
use crate::store::slot;
use crate::store::{attempts, before_commit, live, progress, tally, unique_key};

/// Walks `settled_expires_idx`.
static EXPIRED: Statement<(Time, i32, Time), (i64, i8)> = Statement::new(
    c"SELECT s.task_no, s.code FROM taskq.settled s WHERE s.expires_at >= $3 AND s.expires_at <= $1
       ORDER BY s.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED",
);
static REMOVE_SETTLED: Statement<&[i64]> = Statement::new(sql!(
    "WITH gone AS (
        DELETE FROM taskq.settled s WHERE s.task_no = ANY ($1)
        RETURNING s.settled_at, s.action_no, s.code, s.cause),
      ",
    uncounted!("gone"),
    "
      SELECT"
));
static REMOVE_EDGES_AFTER: Statement<&[i64]> =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.after_no = ANY ($1)");
static REMOVE_EDGES_RUN: Statement<&[i64]> =
    Statement::new(c"DELETE FROM taskq.dependency d WHERE d.run_no = ANY ($1)");
/// The action is looked up only for those that have a key.
static REMOVE_TASKS: Statement<
    &[i64],
    (i64, Option<String>, Option<String>, Option<String>, Option<String>),
> = Statement::new(
    c"DELETE FROM taskq.task t WHERE t.task_no = ANY ($1)
      RETURNING t.task_no, t.group_id, t.merge_key, t.unique_key,
                CASE WHEN t.unique_key IS NOT NULL OR t.merge_key IS NOT NULL
                     THEN (SELECT a.name FROM taskq.action a WHERE a.action_no = t.action_no) END",
);

/// What tasks that have gone held.
pub(crate) struct Gone {
    count: i64,
    /// Those that had a group, with the group.
    pub(crate) grouped: Vec<(i64, String)>,
    merge_keys: BTreeSet<MergeKey>,
    /// Actions and unique keys, with the numbers of the tasks.
    unique_keys: Vec<((String, String), i64)>,
}

/// Removes `task` rows, and the rows of keys and the slots of groups that nobody has any more; returns how many tasks. `ends` are
/// those of the tasks that had settled.
pub(crate) fn remove_tasks(task_nos: &[i64], ends: &HashMap<i64, Outcome>, now: Time) -> i64 {
    let gone = remove_rows(task_nos);
    let groups: BTreeSet<String> = gone.grouped.iter().map(|(_, group)| group.clone()).collect();
    tally::removed(gone.grouped.iter().map(|(n, group)| (group.as_str(), ends.get(n).copied())), now);
    slot::tidy(&groups.into_iter().collect::<Vec<_>>());
    merge_key::tidy(&gone.merge_keys.into_iter().collect::<Vec<_>>());
    unique_key::tidy(&gone.unique_keys);
    gone.count
}

/// Removes `task` rows, and the rows of unique keys that point to them.
pub(crate) fn remove_rows(task_nos: &[i64]) -> Gone {
    let mut gone =
        Gone { count: 0, grouped: Vec::new(), merge_keys: BTreeSet::new(), unique_keys: Vec::new() };
    REMOVE_TASKS.map(task_nos, |(task_no, group_id, merge_key, unique_key, action)| {
        gone.count += 1;
        let group: Option<String> = group_id;
        let merge_key: Option<String> = merge_key;
        gone.merge_keys.extend(
            action.as_deref().and_then(|action| MergeKey::of(action, group.as_deref(), merge_key.as_deref())),
        );
        if let Some(group) = group {
            gone.grouped.push((task_no, group));
        }
        if let (Some(key), Some(action)) = (unique_key, action) {
            gone.unique_keys.push(((action, key), task_no));
        }
    });
    unique_key::forget(&gone.unique_keys);
    gone
}

thread_local! {
    /// How many tasks this backend has settled since it last removed some. A hint.
    static SETTLED: Cell<usize> = const { Cell::new(0) };
}

/// So many tasks have settled.
pub(crate) fn settled(many: usize) {
    SETTLED.set(SETTLED.get().saturating_add(many));
}

/// Removes tasks whose retention is over, at the end of a call that was granted so many: faster than they come, so that
/// what is kept does not grow. In a transaction that may stay open they are removed at its end: whoever uses an id again
/// would wait for that.
pub(crate) fn keep_up(granted: usize) {
    let pace = 2 * granted.max(SETTLED.take());
    let bound = pace.clamp(STEP as usize, MOST);
    if in_transaction_block() {
        before_commit::sweep(bound);
    } else {
        sweep_from_low_end(bound, clock::now());
    }
}

/// How many are removed in one go at most.
const MOST: usize = 10_000;

/// [`sweep`], from where the last probe of this backend has found something.
pub(super) fn sweep_from_low_end(bound: usize, now: Time) -> usize {
    sweep(bound, low_ends::starts(&[], now).settled, now)
}

/// Removes up to `bound` tasks whose retention is over, from `start` on; returns how many. Waits for nobody: a task with a
/// dependency that somebody else is removing is left for later.
pub(crate) fn sweep(bound: usize, start: Time, now: Time) -> usize {
    let mut ends: HashMap<i64, Outcome> = EXPIRED
        .map((now, bound.min(MOST) as i32, start), |(task_no, code)| (task_no, Outcome::from_stored(code)))
        .into_iter()
        .collect();
    if ends.is_empty() {
        return 0;
    }
    // Nobody can add a dependency from here on: he would hold the task's row.
    let edges = live::try_lock_edges_of(&ends.keys().copied().collect::<Vec<_>>());
    if !edges.busy.is_empty() {
        ends.retain(|task_no, _| !edges.busy.contains(task_no));
    }
    let task_nos: Vec<i64> = ends.keys().copied().collect();
    if edges.any {
        REMOVE_EDGES_AFTER.execute(task_nos.as_slice());
        REMOVE_EDGES_RUN.execute(task_nos.as_slice());
    }
    REMOVE_SETTLED.execute(task_nos.as_slice());
    progress::forget(&task_nos);
    attempts::forget(&task_nos);
    remove_tasks(&task_nos, &ends, now);
    task_nos.len()
}
