//! What is due by time and belongs to no worker's claim: timers complete, suspensions end, and tasks expire.
//!
//! Where each kind stands is in [`store::by_time`](crate::store::by_time). No task is waited for: one whose row another transaction has
//! locked is passed over, and found again by a later look.

use std::collections::HashMap;

use super::due;
use super::step::Step;
use crate::locks;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::subtransaction;
use crate::settle::suspended::free_overdue;
use crate::settle::{Ending, fold, settle};
use crate::state::Cause;
use crate::store::by_time::Each;
use crate::store::live::{self, Live};
use crate::store::{contradiction, expiry};

/// How many rows of `expiry` one step looks at, at most, for some that are free.
const ROWS_OF_A_STEP: i32 = 10_000;

/// How often those that were granted meanwhile are left out, before all are left alone.
const ROUNDS: usize = 3;

/// Does up to `bound` of each kind, and of what expires more where others hold the first; that from the first of the times on.
///
/// What expires comes first: a claim that follows must not come to it. (It asks itself as well, since a step is bounded: see
/// [`expiry::is_over`].)
pub(super) fn step(bound: i32, from: &Each<Time>, now: Time) -> Step {
    let expired = expire(bound, from[0], now);
    let freed = free_overdue(bound, now);
    let timers = due::complete_timers(bound, now);
    Step {
        done: expired.done || freed > 0 || timers.done,
        more: expired.more || freed >= bound as usize || timers.more,
    }
}

/// Aborts tasks that were not granted in time.
fn expire(bound: i32, from: Time, now: Time) -> Step {
    let mut most = bound.min(ROWS_OF_A_STEP);
    loop {
        check_for_interrupts();
        let passed = expiry::PASSED.query((now, most, from));
        let found = passed.len() as i32;
        let (mut granted, mut statuses) = (Vec::new(), HashMap::new());
        for (task_no, is_granted, status) in passed {
            if is_granted {
                granted.push(task_no);
            } else {
                statuses.insert(task_no, status);
            }
        }
        let mut task_nos: Vec<TaskNo> = statuses.keys().copied().collect();
        task_nos.sort_unstable();
        let ended = contradiction::leaving(&task_nos, |n| *n, |part| abort(part.to_vec(), &statuses, now));
        let ended = ended.parts.into_iter().sum::<usize>();
        let removed = if granted.is_empty() { 0 } else { expiry::REMOVE_FREE.execute(granted) };
        if ended > 0 || removed > 0 || found < most || most == ROWS_OF_A_STEP {
            let done = ended > 0 || removed > 0;
            return Step { done, more: done && found >= most };
        }
        // All of them are in the hands of others.
        most = (8 * most).min(ROWS_OF_A_STEP);
    }
}

/// Aborts those of the tasks that are still not granted, and that no other transaction has locked; how many.
///
/// A task may have been granted since it was looked at. Then the lock on its row is given up at once, with all others: its actor
/// would wait for it.
fn abort(mut task_nos: Vec<TaskNo>, statuses: &HashMap<TaskNo, String>, now: Time) -> usize {
    for _ in 0..ROUNDS {
        if task_nos.is_empty() {
            break;
        }
        let aborted = subtransaction::all_or_nothing(|| {
            let locked = fold::locked(|| Ok(locks::try_lock(&task_nos)), |rows| rows);
            let rows = locked.unwrap_or_default();
            let granted = granted(&rows);
            if !granted.is_empty() {
                return Err(granted);
            }
            end(&rows, statuses, now);
            Ok(rows.len())
        });
        match aborted {
            Ok(number) => return number,
            Err(granted) => task_nos.retain(|task_no| !granted.contains(task_no)),
        }
    }
    0
}

/// Those that were granted. If a worker has given a task back without counting the try, only the history shows it; so it is read
/// by a statement that begins after the row is locked.
fn granted(rows: &HashMap<TaskNo, Live>) -> Vec<TaskNo> {
    let of_row = rows.values().filter(|row| row.in_progress() || row.tries > 0).map(|row| row.task_no);
    let mut granted: Vec<TaskNo> = of_row.collect();
    granted.extend(expiry::RELEASED.query(rows.keys().copied().collect::<Vec<_>>()));
    granted
}

fn end(rows: &HashMap<TaskNo, Live>, statuses: &HashMap<TaskNo, String>, now: Time) {
    live::remove(rows.values());
    let ending = |row: &Live| Ending::abort(row, Cause::Expired, statuses.get(&row.task_no).cloned());
    let mut endings: Vec<Ending> = rows.values().map(ending).collect();
    endings.sort_unstable_by_key(|ending| ending.task_no);
    settle(endings, now);
}
