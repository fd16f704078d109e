//! Removing tasks, and what they leave behind.

use std::collections::{BTreeSet, HashMap};

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::state::Outcome;
use crate::store::reason::MergeKey;
use crate::store::tally::{self, Losses};
use crate::store::task::REMOVE;
use crate::store::{expiry, merge_key, slot, unique_key};

/// What tasks that have gone leave behind, to be tidied up once for all of them.
#[derive(Default)]
pub(crate) struct Traces {
    count: i64,
    losses: Losses,
    merge_keys: BTreeSet<MergeKey>,
    /// One of their actions and unique keys.
    unique_key: Option<(String, String)>,
}

impl Traces {
    /// Removes `task` rows, their rows of `expiry`, and the rows of unique keys that point to them, unless these are
    /// locked. `ends` are those of the tasks that had settled.
    pub(crate) fn by_removing(&mut self, task_nos: &[TaskNo], ends: &HashMap<TaskNo, Outcome>) {
        let (mut unique_keys, mut expiring) = (Vec::new(), Vec::new());
        REMOVE.map(task_nos, |(task_no, expires, group, merge_key, unique_key, action)| {
            if expires {
                expiring.push(task_no);
            }
            let (group, merge_key): (Option<String>, Option<String>) = (group, merge_key);
            self.count += 1;
            self.merge_keys.extend(
                action
                    .as_deref()
                    .and_then(|action| MergeKey::of(action, group.as_deref(), merge_key.as_deref())),
            );
            if let Some(group) = group {
                self.losses.add(group, ends.get(&task_no).copied());
            }
            if let (Some(key), Some(action)) = (unique_key, action) {
                unique_keys.push(((action, key), task_no));
            }
        });
        unique_key::forget(&unique_keys);
        expiry::forget(&expiring);
        if let Some((key, _)) = unique_keys.pop() {
            self.unique_key = Some(key);
        }
    }

    /// Counts them out of their groups. The rows of keys and the slots of groups that no task has any more are
    /// left.
    pub(crate) fn count_out(self, now: Time) {
        tally::removed(&self.losses, now);
    }

    /// Counts them out of their groups, and removes what is not locked of the rows of keys and the slots of groups that no task
    /// has any more; returns how many tasks it were.
    pub(crate) fn tidy(self, now: Time) -> i64 {
        tally::removed(&self.losses, now);
        slot::tidy(&self.losses.groups().cloned().collect::<Vec<_>>());
        merge_key::tidy(&self.merge_keys.into_iter().collect::<Vec<_>>());
        unique_key::tidy(self.unique_key.as_ref());
        self.count
    }
}
