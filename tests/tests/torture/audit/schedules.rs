//! Runs of a schedule do not overlap where its policy forbids it.

use super::view::View;
use crate::state::Task;

pub fn do_not_overlap(view: &View) -> Vec<String> {
    let mut found = Vec::new();
    for name in ["skipping@", "replacing@"] {
        let mut runs: Vec<&Task> =
            view.state.tasks.values().filter(|task| task.id.starts_with(name)).collect();
        runs.sort_by_key(|run| run.inserted);
        for pair in runs.windows(2) {
            // Both times are taken in the same transaction where one run makes way for the next.
            if pair[0].settled.is_none_or(|settled| settled > pair[1].inserted + SAME_MOMENT) {
                found.push(format!("{} was inserted before {} had settled", pair[1].id, pair[0].id));
            }
        }
    }
    found
}

/// The end of the run before may be a little later than the insertion that saw it, by the order in which they looked at the
/// clock, in microseconds.
const SAME_MOMENT: i64 = 1_000_000;
