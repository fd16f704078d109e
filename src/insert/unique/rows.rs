//! Which tasks hold keys, and locking keys ahead.

use std::collections::{BTreeMap, BTreeSet};

use super::known::{Holder, Known, key_of};
use crate::clock;
use crate::input::{States, TaskSpec};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, record};
use crate::store::unique_key::{self, Key};

record! {
    /// The task that a key points to, or that it comes behind; nothing if it is gone.
    struct Pointed {
        task_no: Option<TaskNo>,
        id: Option<String>,
        until: Option<Time>,
        states: Option<i16>,
        state: Option<i16>,
        held_back: Option<bool>,
        may_ride: Option<bool>,
    }
}

/// Where tasks that keys point to are, in one snapshot: two rows for a key, for the task inserted last with it and for
/// the one behind which that came, each empty behind the key's own columns if there is none. States are the bits of
/// [`States`]; what rides on another is in progress with that.
static HOLDERS: Statement<(&[&str], &[&str], Time), (String, String, TaskNo, Time, Option<Time>, Pointed)> = Statement::new(
    c"SELECT u.action, u.key, k.task_no, k.since, k.not_before,
             t.task_no, t.id, t.unique_until, t.unique_states, t.state, t.held_back, t.may_ride
        FROM unnest($1, $2) AS u(action, key)
       CROSS JOIN LATERAL (SELECT k.task_no, k.behind_no, k.since, k.not_before FROM taskq.unique_key k
                            WHERE k.action = u.action AND k.key = u.key OFFSET 0) AS k
       CROSS JOIN LATERAL (VALUES (k.task_no), (k.behind_no)) AS n(task_no)
        LEFT JOIN LATERAL (
             SELECT t.task_no, t.id, t.unique_until, t.unique_states,
                    COALESCE((SELECT CASE s.code WHEN 'c' THEN 16 ELSE 32 END
                                FROM taskq.settled s WHERE s.task_no = t.task_no),
                             (SELECT CASE WHEN r.nonce <> 0 OR r.aside < 0 THEN 8 END
                                FROM taskq.run r WHERE r.task_no = t.task_no),
                             (SELECT CASE WHEN p.kind = 'm' THEN 8 END
                                FROM taskq.parked p WHERE p.task_no = t.task_no AND t.merge_key IS NOT NULL),
                             (SELECT 1 FROM taskq.blocked w WHERE w.task_no = t.task_no),
                             (SELECT CASE WHEN d.due > $3 THEN 2 END
                                FROM taskq.scheduled d WHERE d.task_no = t.task_no),
                             CASE WHEN h.held_back THEN 2 ELSE 4 END)::smallint AS state,
                    h.held_back, t.merge_key IS NOT NULL AS may_ride
               FROM taskq.task t
              CROSS JOIN LATERAL (
                    SELECT EXISTS (SELECT FROM taskq.workgroup w
                                    WHERE w.name = t.workgroup AND w.not_before > $3 OFFSET 0) AS held_back OFFSET 0) AS h
              WHERE t.task_no = n.task_no AND t.unique_states IS NOT NULL OFFSET 0) AS t ON true",
);

/// What is stored of these keys, whose rows are locked.
pub(super) fn look(keys: &[Key], now: Time) -> BTreeMap<Key, Known> {
    let (actions, names): (Vec<&str>, Vec<&str>) =
        keys.iter().map(|(action, key)| (action.as_str(), key.as_str())).unzip();
    let mut found: BTreeMap<Key, Known> = BTreeMap::new();
    if actions.is_empty() {
        return found;
    }
    for (action, key, task_no, since, not_before, pointed) in HOLDERS.query((actions, names, now)) {
        let known = found.entry((action, key)).or_insert_with(|| Known::new(task_no, since, not_before));
        match pointed.holder() {
            Some(holder) if holder.task_no == known.points_to => known.holder = Some(holder),
            Some(behind) => known.behind = Some(behind),
            None => {}
        }
    }
    found
}

impl Pointed {
    /// `None` if the task is gone.
    fn holder(self) -> Option<Holder> {
        Some(Holder {
            task_no: self.task_no?,
            id: self.id?,
            until: self.until,
            states: States(self.states?),
            state: States(self.state?),
            held_back: self.held_back?,
            may_ride: self.may_ride?,
            locked: false,
            in_call: false,
        })
    }
}

/// The keys of tasks that are to be inserted.
pub(crate) fn of<'a>(specs: impl Iterator<Item = &'a TaskSpec>) -> BTreeSet<Key> {
    specs.filter_map(key_of).collect()
}

/// Locks the keys of tasks that are inserted later in this call, after other locks: they come first in the global order.
/// [`unlock`] removes the rows that were made and not used.
pub(crate) fn lock_ahead(keys: &BTreeSet<Key>) {
    if !keys.is_empty() {
        unique_key::lock(keys.iter().map(|key| (key, TaskNo::NONE)), clock::now());
    }
}

/// Removes the rows that [`lock_ahead`] has made and that no task was inserted for.
pub(crate) fn unlock(keys: &BTreeSet<Key>) {
    unique_key::release(&keys.iter().map(|key| (key, TaskNo::NONE)).collect::<Vec<_>>());
}
