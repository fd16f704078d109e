//! The table `unique_key`: one row per key of unique tasks, which points to the task inserted last with it.

use std::collections::HashSet;

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::Statement;

/// Action and key.
pub(crate) type Key = (String, String);

/// The WHERE makes a row that is there already locked, and not written.
static INSERT_OR_LOCK: Statement<(&[&str], &[&str], &[TaskNo], Time), TaskNo> = Statement::new(
    c"INSERT INTO taskq.unique_key AS k (action, key, task_no, since)
      SELECT u.action, u.key, u.task_no, $4 FROM unnest($1, $2, $3) AS u(action, key, task_no)
      ON CONFLICT (action, key) DO UPDATE SET task_no = k.task_no WHERE false
      RETURNING k.task_no",
);

/// Locks the rows of keys, and makes those that are missing; returns the numbers of the rows made.
pub(crate) fn lock<'a>(keys: impl Iterator<Item = (&'a Key, TaskNo)>, now: Time) -> HashSet<TaskNo> {
    let (mut actions, mut names, mut task_nos) = (Vec::new(), Vec::new(), Vec::new());
    for ((action, name), task_no) in keys {
        actions.push(action.as_str());
        names.push(name.as_str());
        task_nos.push(task_no);
    }
    INSERT_OR_LOCK.query((actions, names, task_nos, now)).into_iter().collect()
}

/// What the row of a key is to point to.
pub(crate) struct Pointer<'a> {
    /// The key, with its action.
    pub(crate) key: &'a Key,
    /// The task that was inserted with it last.
    pub(crate) task_no: TaskNo,
    /// The task behind which it comes.
    pub(crate) behind: Option<TaskNo>,
    /// When the first of those that replaced each other was inserted.
    pub(crate) since: Time,
    /// The end of the period of the one before.
    pub(crate) not_before: Option<Time>,
}

static POINT: Statement<(&[&str], &[&str], &[TaskNo], &[TaskNo], &[Time], &[Time])> = Statement::new(
    c"INSERT INTO taskq.unique_key AS k (action, key, task_no, behind_no, since, not_before)
      SELECT u.action, u.key, u.task_no, u.behind_no, u.since, u.not_before
        FROM unnest($1, $2, $3, $4, $5, $6) AS u(action, key, task_no, behind_no, since, not_before)
      ON CONFLICT (action, key) DO UPDATE
         SET task_no = EXCLUDED.task_no, behind_no = EXCLUDED.behind_no, since = EXCLUDED.since,
             not_before = EXCLUDED.not_before",
);

/// Lets rows that are locked point to new tasks. (A row that the call has removed together with the task that
/// it pointed to is made again.)
pub(crate) fn point(pointers: &[Pointer]) {
    if pointers.is_empty() {
        return;
    }
    POINT.execute((
        pointers.iter().map(|p| p.key.0.as_str()).collect::<Vec<_>>(),
        pointers.iter().map(|p| p.key.1.as_str()).collect::<Vec<_>>(),
        pointers.iter().map(|p| p.task_no).collect::<Vec<_>>(),
        pointers.iter().map(|p| p.behind).collect::<Vec<_>>(),
        pointers.iter().map(|p| p.since).collect::<Vec<_>>(),
        pointers.iter().map(|p| p.not_before).collect::<Vec<_>>(),
    ));
}

/// What came behind another task leaves the key to that, if it is still there.
static RELEASE: Statement<(&[&str], &[&str], &[TaskNo])> = Statement::new(
    c"WITH rows AS MATERIALIZED (
             SELECT k.ctid AS place,
                    (SELECT t.task_no FROM taskq.task t WHERE t.task_no = k.behind_no) AS behind_no
               FROM unnest($1, $2, $3) AS u(action, key, task_no)
              CROSS JOIN LATERAL (SELECT k.ctid, k.behind_no FROM taskq.unique_key k
                                   WHERE k.action = u.action AND k.key = u.key AND k.task_no = u.task_no
                                     FOR UPDATE SKIP LOCKED) AS k),
           handed_on AS (
             UPDATE taskq.unique_key k SET task_no = k.behind_no, behind_no = NULL, not_before = NULL
              WHERE k.ctid = ANY (ARRAY(SELECT r.place FROM rows AS r WHERE r.behind_no IS NOT NULL)))
      DELETE FROM taskq.unique_key k
       WHERE k.ctid = ANY (ARRAY(SELECT r.place FROM rows AS r WHERE r.behind_no IS NULL))",
);

/// Removes rows that point to these numbers, or lets them point to the task behind which that came. One that another
/// transaction has locked is left.
pub(crate) fn release(rows: &[(&Key, TaskNo)]) {
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
pub(crate) fn forget(gone: &[(Key, TaskNo)]) {
    release(&gone.iter().map(|(key, task_no)| (key, *task_no)).collect::<Vec<_>>());
}

/// Rows behind a key that point to tasks that are gone, among the next so many. A number that is gone stays
/// gone; and a row that is seen here was made together with its task, which an insertion under way would not
/// have done yet: not to be called by one.
static LEFT_BEHIND: Statement<(&str, &str), (String, String, TaskNo)> = Statement::new(
    c"SELECT k.action, k.key, k.task_no
        FROM (SELECT k.action, k.key, k.task_no FROM taskq.unique_key k
               WHERE (k.action, k.key) > ($1, $2) ORDER BY k.action, k.key LIMIT 20) AS k
       WHERE NOT EXISTS (SELECT FROM taskq.task t WHERE t.task_no = k.task_no OFFSET 0)",
);

/// Removes rows that a removal had to leave, among those behind the key of a task that has just gone. The
/// keys that go are spread over all keys, so what was left is met in time.
pub(crate) fn tidy(gone: Option<&Key>) {
    let Some(last) = gone else { return };
    let left: Vec<(Key, TaskNo)> = LEFT_BEHIND
        .map((last.0.as_str(), last.1.as_str()), |(action, key, task_no)| ((action, key), task_no));
    release(&left.iter().map(|(key, task_no)| (key, *task_no)).collect::<Vec<_>>());
}
