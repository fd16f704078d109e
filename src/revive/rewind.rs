//! A pending task forgets what its suspensions have added.

use std::collections::HashMap;

use super::lock_neighbours;
use super::suspending::drop_suspending;
use crate::insert::{Standing, block};
use crate::number::{FIRST_WAIT, TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::statement::Statement;
use crate::recount::{self, Recount};
use crate::settle::fold;
use crate::store::dependency;
use crate::store::live::{self, Counter, Live, Place};

/// Locks what a task that waits is waiting for, whose row the call has, and counts what has been left for it; whether it still stands
/// where it did. No end is on its way to it from here on.
pub(crate) fn lock_to_rewind(row: &Live, now: Time) -> bool {
    if row.counter().is_none() {
        return true;
    }
    lock_neighbours(&[row.task_no]);
    !fold::of(&[row.task_no], now)
}

/// What a task waits for.
static OPEN: Statement<TaskNo, TaskNo> = Statement::new(
    c"SELECT d.after_no FROM taskq.dependency d
       WHERE d.run_no = $1 AND d.state = 'w'
         AND NOT EXISTS (SELECT FROM taskq.settled s WHERE s.task_no = d.after_no OFFSET 0)",
);

/// Removes what suspensions have added to the dependencies of a pending task that [`lock_to_rewind`] has seen to. One that is suspended
/// is free, unless it waits for dependencies that no suspension has added: then it goes on waiting for those, as any task.
///
/// One for which some suffice had enough of them before it was suspended, and goes on without what is open.
pub(crate) fn without_suspension(row: &Live, now: Time) {
    let task_no = row.task_no;
    let mut recount = Recount::default();
    recount.before(std::iter::once(row));
    let removed = drop_suspending(&[task_no]);
    let mut left = row.clone();
    let Some(counter) = row.counter().filter(|counter| counter.since.is_some()) else {
        if !removed.is_empty() {
            recount::store(recount.after(vec![left]), &HashMap::new(), now);
        }
        return;
    };
    left.place = Place::Blocked(Counter { not_before: None, since: None, ..*counter });
    // Its time-out is over with its suspension.
    live::remove([row]);
    let mut recounted = recount.after(vec![left]);
    let Some(Standing::Waiting { remaining, spare }) = recounted.first().map(|one| one.standing) else {
        recount::store(recounted, &HashMap::new(), now);
        return;
    };
    // No end is on its way to the wait that it began with: what it waits for is locked, and what was left for it is counted.
    let open: Vec<TaskNo> = OPEN.query(task_no);
    let wait_nos: Vec<WaitNo> = vec![FIRST_WAIT; open.len()];
    dependency::WAIT_AGAIN.execute((open, vec![task_no; wait_nos.len()], wait_nos));
    block(recounted.drain(..).map(|one| (one.row, remaining, spare, FIRST_WAIT)).collect());
}
