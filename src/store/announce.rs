//! Telling others that tasks are ready.

use std::collections::BTreeSet;

use crate::store::known_actions;
use crate::store::notify::notify_ready;
use crate::wake;

/// Has calls that wait for these actions woken at commit, one at most for each element; notifies the listeners of those actions
/// that are set to `notify`.
pub(crate) fn announce(action_nos: &[i32]) {
    for action_no in action_nos {
        wake::ready(*action_no);
    }
    let action_nos: BTreeSet<i32> = action_nos.iter().copied().collect();
    let is_set = |n: &i32| known_actions::of_number(*n).is_some_and(|action| action.setting.notify);
    let notified: BTreeSet<i32> = action_nos.into_iter().filter(is_set).collect();
    if !notified.is_empty() {
        notify_ready(&notified);
    }
}
