//! A pending task forgets what its suspensions have added.

use super::suspending::remove;
use super::{Renumbered, lock_neighbours};
use crate::locks;
use crate::number::{TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::session::transaction_number;
use crate::pg::statement::Statement;
use crate::settle::{fold, release_or_complete, settle};
use crate::store::live::{self, Counter, Live, Place};
use crate::store::run::changes;
use crate::store::{blocked, parked, scheduled, task};

/// Locks what a task that waits is waiting for, whose row the call has, and counts what has been left for it; whether it still stands
/// where it did. No end is on its way to it from here on.
pub(crate) fn lock_to_rewind(row: &Live, now: Time) -> bool {
    if row.counter().is_none() {
        return true;
    }
    lock_neighbours(&[row.task_no]);
    !fold::of(&[row.task_no], now)
}

/// Open dependencies of the wait that a task is in.
static OPEN: Statement<(TaskNo, WaitNo), TaskNo> = Statement::new(
    c"SELECT d.after_no FROM taskq.dependency d
       WHERE d.run_no = $1 AND d.wait_no = $2
         AND NOT EXISTS (SELECT FROM taskq.settled s WHERE s.task_no = d.after_no OFFSET 0)",
);

/// Removes what suspensions have added to the dependencies of a pending task that [`lock_to_rewind`] has seen to. One that is suspended
/// is free, unless it was given other dependencies meanwhile: then it waits for those, as any task.
pub(crate) fn without_suspension(row: &Live, now: Time) {
    let task_no = row.task_no;
    let suspended = row.counter().is_some_and(|counter| counter.since.is_some());
    if row.counter().is_some() && !suspended && !task::with_num_required(&[task_no]).is_empty() {
        // Brought back after an abort, and some of its dependencies suffice: how many is no question of one of them.
        return;
    }
    let removed: Vec<TaskNo> = remove(&[task_no]).into_iter().map(|(after, _)| after).collect();
    if removed.is_empty() && !suspended {
        return;
    }
    let failed = locks::outcomes(&removed).values().filter(|outcome| outcome.is_abort()).count() as i32;
    let all = removed.len() as i32;
    let fewer = (vec![task_no], -all, -failed);
    match row.place {
        Place::Run { .. } => {
            changes::RECOUNT.execute(fewer);
        }
        Place::Scheduled { .. } => {
            scheduled::RECOUNT.execute(fewer);
        }
        Place::Parked => {
            parked::RECOUNT.execute(fewer);
        }
        Place::Blocked(counter) => {
            let left = Live {
                dependencies: (row.dependencies - all).max(0),
                failures: (row.failures - failed).max(0),
                ..row.clone()
            };
            live::remove([row]);
            go_on(left, counter, now);
        }
    }
}

/// Puts a task whose counter is removed where its other dependencies say it belongs.
fn go_on(row: Live, counter: Counter, now: Time) {
    let open: Vec<TaskNo> = OPEN.query((row.task_no, counter.wait_no));
    if open.is_empty() {
        let place =
            Place::Blocked(Counter { remaining: 0, spare: 0, not_before: None, since: None, ..counter });
        settle(release_or_complete(vec![Live { place, ..row }], now), now);
        return;
    }
    // Another wait: what was left for this one is not all the task's any more.
    let wait_no = transaction_number();
    let mut renumbered = Renumbered::default();
    for after in &open {
        renumbered.add(*after, row.task_no, wait_no);
    }
    renumbered.store();
    let counter = Counter { remaining: open.len() as i32, spare: 0, not_before: None, wait_no, since: None };
    blocked::insert(std::iter::once(blocked::New {
        failures: row.failures,
        dependencies: row.dependencies,
        tries: row.tries,
        ..blocked::New::of(row.task_no, None, counter)
    }));
}
