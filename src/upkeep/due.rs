//! Tasks whose time has come move from `scheduled` to the end of their priority in `run`.

use super::steps::Step;
use crate::pg::clock::Time;
use crate::store::ready::{Freed, make_ready};
use crate::store::scheduled;

/// Releases up to `bound` tasks of these actions that are due, from a time on for each.
pub(crate) fn release(action_nos: &[i32], starts: Vec<Time>, bound: i32, now: Time) -> Step {
    let mut due = scheduled::TAKE_DUE.query((action_nos, bound, now, starts));
    due.sort_by_key(|(due, position, freed)| (*due, *position, freed.task_no));
    let freed: Vec<Freed> = due.into_iter().map(|(.., freed)| freed).collect();
    make_ready(&freed);
    Step { done: !freed.is_empty(), more: freed.len() as i32 >= bound }
}
