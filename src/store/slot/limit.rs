//! What limits are for, and the locks under which their slots are made.

use std::collections::BTreeMap;

use crate::pg::lock::{self, Key, Mode};

/// The greatest limit: each place that it allows may be a row.
pub(crate) const MOST_SLOTS: i32 = 100_000;

/// What a limit is for: all tasks of an action, those of one group in it, or those of one group in all actions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Limit {
    /// Empty: any.
    pub(super) action: String,
    /// Empty: any.
    pub(super) group: String,
}

impl Limit {
    /// An action's `max_concurrency`.
    pub(crate) fn of_action(action: &str) -> Self {
        Limit { action: action.to_owned(), group: String::new() }
    }

    /// An action's `max_per_group`, for one group.
    pub(crate) fn per_group(action: &str, group: &str) -> Self {
        Limit { action: action.to_owned(), group: group.to_owned() }
    }

    /// A group's own `max_concurrency`.
    pub(crate) fn of_group(group: &str) -> Self {
        Limit { action: String::new(), group: group.to_owned() }
    }

    /// Whether slots are made when they are first needed; those of an action are made with the limit.
    pub(super) fn made_when_needed(&self) -> bool {
        !self.group.is_empty()
    }

    /// Held alone by a call that makes or removes slots of this limit, of a group, unless it has the shared key alone. (Those of an
    /// action's own limit change under its row of settings.) One key stands for many limits.
    fn key(&self) -> Key {
        Key::new(&[&self.action, &self.group]).one_of(MOST_KEYS, "slots")
    }

    /// Shared by calls that make or remove slots of some groups in the action (empty: of groups of their own); held
    /// alone by a call that does so for many, or keeps the others from it.
    fn shared_key(action: &str) -> Key {
        Key::new(&[action]).one_of(MOST_KEYS, "slots of groups")
    }
}

/// How many locks stand for all limits, and as many for all actions.
const MOST_KEYS: u64 = 128;

/// For how many limits of one action a call takes locks at most: the lock table has little room. For more it takes
/// one that stands for all, if that is to be had.
const MOST_LOCKS: usize = 16;

/// The places of those limits whose slots may be made or removed by this transaction.
pub(super) fn lockable(limits: &[&Limit]) -> Vec<usize> {
    let mut by_action: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, limit) in limits.iter().enumerate() {
        by_action.entry(&limit.action).or_default().push(i);
    }
    let mut lockable = Vec::new();
    for (action, places) in by_action {
        let shared = Limit::shared_key(action);
        if places.len() > MOST_LOCKS && lock::try_lock(shared, Mode::Alone) {
            lockable.extend(places);
        } else if lock::try_lock(shared, Mode::Shared) {
            let few = places.into_iter().take(MOST_LOCKS);
            lockable.extend(few.filter(|i| lock::try_lock(limits[*i].key(), Mode::Alone)));
        }
    }
    lockable
}

/// Keeps other calls from making slots of the limit, of an action from making those of any group in it; waits for those
/// that do.
pub(crate) fn keep_from_making(limit: &Limit) {
    lock::lock(
        Limit::shared_key(&limit.action),
        if limit.group.is_empty() { Mode::Alone } else { Mode::Shared },
    );
    if !limit.group.is_empty() {
        lock::lock(limit.key(), Mode::Alone);
    }
}
