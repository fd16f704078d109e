//! What keeps entries from running, as the tables have it: groups that are paused, workgroups that are held back, merge keys
//! that other tasks have. The [gates](super::gates) ask for groups and workgroups of entries that the claim has taken, and once more
//! under locks for such as are in the way; [`may_run`](super::may_run) asks for one entry before it is taken, and takes the
//! answer for a hint.
//!
//! Both go in this order: group, workgroup, key.

use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::store::reason::MergeKey;

/// A group that is paused or has a limit of its own: its name, whether it is paused, and whether it has the limit.
pub(super) type Group = (String, bool, bool);

static GROUPS: Statement<&[&str], Group> = Statement::new(
    c"SELECT g.group_id, g.paused, g.max_concurrency IS NOT NULL FROM taskq.task_group g
       WHERE g.group_id = ANY ($1) AND (g.paused OR g.max_concurrency IS NOT NULL)",
);

/// Those of the groups that are paused or have a limit of their own.
pub(super) fn groups(names: &[&str]) -> Vec<Group> {
    GROUPS.query(names)
}

static STILL_PAUSED: Statement<&[&str], String> = Statement::new(
    c"SELECT g.group_id FROM taskq.task_group g WHERE g.group_id = ANY ($1) AND g.paused
       ORDER BY g.group_id FOR SHARE SKIP LOCKED",
);

/// Those of the groups that are paused, with their rows locked against a call that resumes them; it waits for none.
pub(super) fn still_paused(names: Vec<String>) -> Vec<String> {
    STILL_PAUSED.query(names)
}

static HELD_BACK: Statement<(&[&str], Time), (String, Time)> = Statement::new(
    c"SELECT w.name, pg_catalog.max(w.not_before) FROM taskq.workgroup w
       WHERE w.name = ANY ($1) AND w.not_before > $2 GROUP BY w.name",
);

/// Those of the workgroups that are held back, and until when.
pub(super) fn held_back(names: &[&str], now: Time) -> Vec<(String, Time)> {
    HELD_BACK.query((names, now))
}

static BUSY: Statement<(&str, &str, &str), bool> = Statement::new(
    c"SELECT true FROM taskq.merge_key m
       WHERE m.action = $1 AND m.group_id = $2 AND m.key = $3 AND m.holder_no IS NOT NULL",
);

/// Whether another task has the key.
pub(super) fn is_busy(key: &MergeKey) -> bool {
    BUSY.first((key.action.as_str(), key.group.as_str(), key.key.as_str())).is_some()
}
