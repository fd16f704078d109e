//! Tasks whose time has come move from `scheduled` to the end of their priority in `run`; timers complete.

use std::cell::RefCell;

use super::step::Step;
use crate::number::{Position, TaskNo};
use crate::pg::clock::Time;
use crate::pg::subtransaction::unless_rows_are_wrong;
use crate::settle::{Ending, settle};
use crate::state::{Cause, Outcome};
use crate::store::freed::Freed;
use crate::store::ready::make_ready;
use crate::store::{contradiction, scheduled};

/// Releases up to `bound` tasks of these actions that are due, from a time on for each.
pub(crate) fn release(action_nos: &[i32], starts: Vec<Time>, bound: i32, now: Time) -> Step {
    let taken: RefCell<Vec<TaskNo>> = RefCell::default();
    let all_at_once = unless_rows_are_wrong(|| {
        let due = scheduled::TAKE_DUE.query((action_nos, bound, now, starts));
        taken.replace(due.iter().map(|(.., freed)| freed.task_no).collect());
        in_order(due, now)
    });
    let taken = taken.into_inner();
    let done = all_at_once.unwrap_or_else(|_| leaving_some(&taken, now));
    Step { done: done > 0, more: done > 0 && taken.len() as i32 >= bound }
}

/// Releases those of these that are due and that no other transaction has.
pub(crate) fn release_these(task_nos: &[TaskNo], now: Time) {
    contradiction::leaving(task_nos, |n| *n, |part| in_order(scheduled::TAKE.query((part, now)), now));
}

/// Completes up to `bound` timers whose time has come, of whatever action.
pub(crate) fn complete_timers(bound: i32, now: Time) -> Step {
    let taken: RefCell<Vec<TaskNo>> = RefCell::default();
    let all_at_once = unless_rows_are_wrong(|| {
        let due = scheduled::TAKE_TIMERS.query((bound, now));
        taken.replace(due.iter().map(|(.., freed)| freed.task_no).collect());
        in_order(due, now)
    });
    let taken = taken.into_inner();
    let done = all_at_once.unwrap_or_else(|_| leaving_some(&taken, now));
    Step { done: done > 0, more: done > 0 && taken.len() as i32 >= bound }
}

/// A task that was taken out: since when it was due, where it stands among those, and whether it is a timer.
type Taken = (Time, Position, bool, Freed);

/// Makes ready what was taken out, and completes timers; how many that were.
fn in_order(mut due: Vec<Taken>, now: Time) -> usize {
    due.sort_by_key(|(due, position, _, freed)| (*due, *position, freed.task_no));
    let (timers, others): (Vec<Taken>, Vec<Taken>) = due.into_iter().partition(|(.., timer, _)| *timer);
    let freed: Vec<Freed> = others.into_iter().map(|(.., freed)| freed).collect();
    make_ready(&freed);
    let complete = |freed: &Freed| Ending::of_freed(freed, Outcome::Completed, Cause::Spontaneous, None);
    let endings: Vec<Ending> = timers.iter().map(|(.., freed)| complete(freed)).collect();
    let count = freed.len() + endings.len();
    if !endings.is_empty() {
        settle(endings, now);
    }
    count
}

/// The same with those of the tasks that can be: one whose rows contradict others is due again later.
fn leaving_some(task_nos: &[TaskNo], now: Time) -> usize {
    let take = |part: &[TaskNo]| in_order(scheduled::TAKE.query((part, now)), now);
    let done = contradiction::leaving(task_nos, |n| *n, take);
    if !done.left.is_empty() {
        scheduled::PUT_OFF.execute((done.left, now, now + contradiction::LEAVE));
    }
    done.parts.into_iter().sum()
}
