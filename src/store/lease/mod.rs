//! The table `lease`: deadlines, recorded at each grant or extension that has one, looked after once they have passed
//! (`upkeep::elapsed`), gone with their performances. Also times at which what is parked in place is looked at.
//!
//! **Hardly more rows than there are tasks in progress.** A call that grants or extends tasks appends one row to `lease`
//! for each deadline and base (one for each thousand tasks of it). The row has a *keeper*, one of its tasks. Deadline and keeper are
//! the index; both are at hand where a performance ends or is extended. So a call that ends one performance finds the row by one
//! descent at most if the task is its keeper, and does not read the table if another task is. A keeper that was alone takes
//! the row along. One that leaves others behind has it handed on to one of these right before the commit ([`tidy`]): a keeper is
//! chosen by chance, so that half of the tasks are gone by then, on average, and a row of a hundred tasks that come
//! back one by one is written anew a few times, not a hundred times.
//!
//! A row too many does no harm: it says "look at these tasks once this time has come", and what the tasks' own rows say
//! decides. It is left where another transaction has the row locked, where two tasks of one row come back at the same
//! moment, and by transactions that are prepared, or that are at a higher level than READ COMMITTED. For these, calls
//! that append rows look at a page of `lease` now and then ([`tidy::patrol`]). A row too few would leave a task with a dead
//! worker, and upkeep would not see it. So a row is removed only by a transaction after which no task needs it, or that puts
//! another in its place; if that is rolled back, so is the removal.

mod record;
pub(crate) mod tidy;

pub(crate) use record::record;

use crate::ends::before_commit;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::table::{Index, Key, Look, Places, Row, Wait, insert, look, table};
use crate::store::live_row::{Live, Place};
use crate::token::{Base, Nonce};

table!(c"lease":
    DEADLINE: Time,
    BASE: Base,
    KEEPER_NO: TaskNo,
    OTHERS: Option<Vec<TaskNo>>,
);

/// By deadline, keeper_no.
static BY_KEEPER: Index = Index::new(&TABLE, c"lease_deadline_idx");

thread_local! {
    /// Where some of the rows lie that this backend has appended lately, by their keepers.
    static PLACES: Places = const { Places::new() };
}

/// The first deadline from a time on that has passed.
pub(crate) fn first_due(look: &Look, from: Time, now: Time) -> Option<Time> {
    look.first(&BY_KEEPER, &[Key::at_least(1, from), Key::at_most(1, now)], |row| row.get(DEADLINE))
}

/// Appends a row for tasks of one base, one of which becomes its keeper.
pub(crate) fn append(deadline: Time, base: Base, mut task_nos: Vec<TaskNo>) {
    let keeper = task_nos.swap_remove(by_chance(base, task_nos.len()));
    let others = (!task_nos.is_empty()).then_some(task_nos);
    let place = insert(&TABLE, |into| {
        into.row(|| [DEADLINE.to(deadline), BASE.to(base), KEEPER_NO.to(keeper), OTHERS.to(others)]);
        into.place_of_last()
    });
    PLACES.with(|places| places.remember(keeper.0, place));
}

/// A number below `many`. The base is random, and `many` another one each time that the row passes on.
fn by_chance(base: Base, many: usize) -> usize {
    let mixed = (base.0 as u64 ^ many as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % many
}

/// A task that is not held any more under the deadline that it had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// The task that was held.
    pub(crate) task_no: TaskNo,
    /// The nonce of its grant, from which the base of the lease follows; [`Nonce::NONE`]: it had no lease.
    pub(crate) nonce: Nonce,
    /// The deadline that it had; infinity: it had no lease.
    pub(crate) deadline: Time,
}

impl Left {
    /// Whether this row is one that it keeps.
    fn keeps(&self, row: &Row) -> bool {
        row.get(KEEPER_NO) == self.task_no
            && row.get(DEADLINE) == self.deadline
            && row.get(BASE) == self.nonce.base(self.task_no)
    }

    fn let_go(&self, row: &Row) {
        if row.get(OTHERS).is_some() {
            before_commit::hand_on(self.deadline, self.task_no);
        } else {
            // Another transaction that has it locked looks after it: upkeep, or a patrol.
            row.delete(Wait::No);
        }
    }
}

/// Lets go of the leases that these tasks keep. To be called after the change of their rows in `run`, in the same
/// transaction.
pub(crate) fn leave(left: &[Left]) {
    let mut left: Vec<&Left> =
        left.iter().filter(|l| l.nonce != Nonce::NONE && l.deadline != Time::INFINITY).collect();
    if left.is_empty() {
        return;
    }
    left.sort_unstable_by_key(|left| (left.deadline, left.task_no));
    look(|look| {
        look.changing(&BY_KEEPER, |rows| {
            // What one call was granted has few deadlines, and few keepers.
            for left in left.chunk_by(|one, next| one.deadline == next.deadline) {
                let (first, last) = (left[0], left[left.len() - 1]);
                if let [left] = left {
                    let seen = rows.last_seen(&PLACES, left.task_no).filter(|row| left.keeps(row));
                    if let Some(row) = seen {
                        left.let_go(&row);
                        continue;
                    }
                }
                rows.start(&[
                    Key::eq(1, first.deadline),
                    Key::at_least(2, first.task_no),
                    Key::at_most(2, last.task_no),
                ]);
                while let Some(row) = rows.next() {
                    let keeper = row.get(KEEPER_NO);
                    let Ok(at) = left.binary_search_by_key(&keeper, |left| left.task_no) else { continue };
                    if left[at].keeps(&row) {
                        left[at].let_go(&row);
                    }
                }
            }
        });
    });
}

/// The same for rows that were removed from `run`.
pub(crate) fn leave_removed<'a>(rows: impl IntoIterator<Item = &'a Live>) {
    let left: Vec<Left> = rows
        .into_iter()
        .filter_map(|row| match row.place {
            Place::Run { nonce } => Some(Left { task_no: row.task_no, nonce, deadline: row.deadline }),
            _ => None,
        })
        .collect();
    leave(&left);
}

#[cfg(test)]
mod tests {
    use super::{Base, by_chance};

    #[test]
    fn any_task_may_become_the_keeper_and_none_too_often() {
        let mut met = [0; 10];
        for base in 0..10_000 {
            met[by_chance(Base(base << 7), 10)] += 1;
        }
        assert!(met.iter().all(|times| (800..1200).contains(times)), "{met:?}");
        assert_eq!(by_chance(Base(i64::MAX), 1), 0);
    }
}
