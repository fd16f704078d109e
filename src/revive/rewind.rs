//! A pending task forgets what its suspensions have added.

use super::edges::{Changed, Under};
use super::lock_neighbours;
use super::suspending::{Removed, remove};
use crate::locks;
use crate::number::{FIRST_WAIT, TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::settle::{fold, release_or_complete, settle};
use crate::store::dependency::Counts;
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
       WHERE d.run_no = $1 AND d.wait_no = $2 AND d.counts = 'w'
         AND NOT EXISTS (SELECT FROM taskq.settled s WHERE s.task_no = d.after_no OFFSET 0)",
);

/// Removes what suspensions have added to the dependencies of a pending task that [`lock_to_rewind`] has seen to. One that is suspended
/// is free, unless it waits for dependencies that no suspension has added: then it goes on waiting for those, as any task.
pub(crate) fn without_suspension(row: &Live, now: Time) {
    let task_no = row.task_no;
    let suspended = row.counter().is_some_and(|counter| counter.since.is_some());
    let some_suffice = !task::with_num_required(&[task_no]).is_empty();
    let removed = remove(&[task_no]);
    if removed.is_empty() && !suspended {
        return;
    }
    let outcomes = locks::outcomes(&removed.iter().map(|edge| edge.after).collect::<Vec<_>>());
    let has_failed = |edge: &&Removed| match edge.counts {
        Counts::ForItsWait => outcomes.get(&edge.after).is_some_and(|outcome| outcome.is_abort()),
        kept => kept.has_kept_failure(edge.condition),
    };
    let failed = removed.iter().filter(has_failed).count() as i32;
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
        // Brought back after an abort: what a suspension has added is none of those of which some suffice.
        Place::Blocked(_) if some_suffice && !suspended => {
            blocked::LOWER.execute((vec![task_no], 0, 0, all, failed));
        }
        Place::Blocked(counter) => {
            let left = Live {
                dependencies: (row.dependencies - all).max(0),
                failures: (row.failures - failed).max(0),
                ..row.clone()
            };
            live::remove([row]);
            go_on(left, counter, some_suffice, now);
        }
    }
}

/// Puts a task whose counter is removed where its other dependencies say it belongs.
///
/// One for which some suffice has had enough of them before it was suspended, and goes on without what is open.
fn go_on(row: Live, counter: Counter, some_suffice: bool, now: Time) {
    let open: Vec<TaskNo> = OPEN.query((row.task_no, counter.wait_no));
    let mut changed = Changed::default();
    for after in &open {
        if some_suffice {
            changed.count_no_more(*after, row.task_no, Counts::Dropped);
        } else {
            changed.wait(*after, row.task_no, FIRST_WAIT, Under::First);
        }
    }
    changed.store();
    if open.is_empty() || some_suffice {
        let place =
            Place::Blocked(Counter { remaining: 0, spare: 0, not_before: None, since: None, ..counter });
        let dependencies = row.dependencies - open.len() as i32;
        settle(release_or_complete(vec![Live { place, dependencies, ..row }], now), now);
        return;
    }
    // No end is on its way to the wait that it began with: what it waits for is locked, and what was left for it is counted.
    let counter = Counter {
        remaining: open.len() as i32,
        spare: 0,
        not_before: None,
        wait_no: FIRST_WAIT,
        since: None,
    };
    blocked::insert(std::iter::once(blocked::New {
        failures: row.failures,
        dependencies: row.dependencies,
        tries: row.tries,
        ..blocked::New::of(row.task_no, None, counter)
    }));
}
