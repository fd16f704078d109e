//! The table `lease`: deadlines, recorded at each grant, looked after once they have passed (`upkeep::elapsed`), gone with
//! their performances.
//!
//! **As many rows as there are tasks in progress, at most.** A grant or an extension with a deadline appends one row to
//! `lease` (one for each thousand tasks). The row has a *keeper*, one of its tasks. Deadline and keeper are the index;
//! both are at hand where a performance ends or is extended, so whoever ends it finds the row, if it is the keeper's,
//! by one descent, and finds none, without a look at the table, if it is another's. A keeper that was alone takes the
//! row along. One that leaves others behind has it handed on to one of these right before the commit ([`tidy`]): a
//! keeper is chosen by chance, so that half of the tasks are gone by then, on average, and a row of a hundred tasks
//! that come back one by one is written anew some six times, not a hundred times.
//!
//! A row too many does no harm: it says "look at these tasks once this time has come", and who looks asks the tasks
//! themselves. It is left where somebody else has the row locked, where two tasks of one row come back at the same
//! moment, and by transactions that are prepared. For these, grants look at a page of `lease` now and then ([`tidy::patrol`]).
//! A row too few would leave a task with a dead worker for ever. So a row is removed only by a transaction
//! that sees that no task needs it; if that is rolled back, so is the removal.

pub(crate) mod tidy;

use std::collections::BTreeMap;

use pgrx::pg_sys::{INT8ARRAYOID, INT8OID, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID};

use crate::pg::clock::Time;
use crate::pg::statement::{Statement, args, sql};
use crate::store::before_commit;
use crate::store::live::{Live, Place};
use crate::wake;

/// How many tasks one row has at most: so many are looked at when the row passes on or its time has come.
const MOST_TASKS: usize = 1000;

static RECORD: Statement = Statement::new(
    c"INSERT INTO taskq.lease (deadline, base, keeper_no, others) VALUES ($1, $2, $3, $4)",
    &[TIMESTAMPTZOID, INT8OID, INT8OID, INT8ARRAYOID],
);

/// Remembers the deadlines of tasks granted or extended under one base.
pub(crate) fn record(granted: &[(Time, i64)], base: i64) {
    let mut by_deadline: BTreeMap<Time, Vec<i64>> = BTreeMap::new();
    for (deadline, task_no) in granted {
        if *deadline != Time::INFINITY {
            by_deadline.entry(*deadline).or_default().push(*task_no);
        }
    }
    let mut rows = 0;
    for (deadline, task_nos) in by_deadline {
        for some in task_nos.chunks(MOST_TASKS) {
            append(deadline, base, some.to_vec());
            rows += 1;
        }
        wake::timer(deadline);
        wake::due(deadline);
    }
    if rows > 0 {
        tidy::patrol(rows, base);
    }
}

/// Appends a row for tasks of one base, one of which becomes its keeper.
pub(crate) fn append(deadline: Time, base: i64, mut task_nos: Vec<i64>) {
    let keeper = task_nos.swap_remove(by_chance(base, task_nos.len()));
    RECORD.execute(args![deadline, base, keeper, (!task_nos.is_empty()).then_some(task_nos)]);
}

/// A number below `many`. The base is random, and `many` another one each time that the row passes on.
fn by_chance(base: i64, many: usize) -> usize {
    let mixed = (base as u64 ^ many as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % many
}

/// The leases that tasks keep whose performances end or are extended in this statement: `met` has the tasks, with
/// whether they are alone in it; the rows of those that are go. A row that somebody else has locked is not waited for: its
/// time has come, and he looks after it. $from is some f with task_no, nonce and the deadline that was.
macro_rules! leases_let_go {
    ($from:literal) => {
        concat!(
            "met AS MATERIALIZED (
               SELECT l.ctid, f.task_no, l.alone
                 FROM ",
            $from,
            "
                CROSS JOIN LATERAL (
                      SELECT l.ctid, l.others IS NULL AS alone FROM taskq.lease l
                       WHERE l.deadline = f.deadline AND l.keeper_no = f.task_no AND l.base = f.nonce # f.task_no
                       OFFSET 0) AS l),
             let_go AS (
               DELETE FROM taskq.lease d
                WHERE d.ctid = ANY (ARRAY(
                        SELECT l.ctid FROM taskq.lease l
                         WHERE l.ctid = ANY (ARRAY(SELECT m.ctid FROM met AS m WHERE m.alone))
                           FOR UPDATE SKIP LOCKED)))"
        )
    };
}
pub(crate) use leases_let_go;

static LEAVE: Statement = Statement::new(
    sql!(
        "WITH ",
        leases_let_go!("unnest($1, $2, $3) AS f(task_no, nonce, deadline)"),
        " SELECT m.task_no FROM met AS m WHERE NOT m.alone"
    ),
    &[INT8ARRAYOID, INT8ARRAYOID, TIMESTAMPTZARRAYOID],
);

/// A task that is not held any more under the deadline that it had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) task_no: i64,
    pub(crate) nonce: i64,
    pub(crate) deadline: Time,
}

/// Lets go of the leases that these tasks keep. To be called after the change of their rows in `run`, in the same
/// transaction.
pub(crate) fn leave(left: &[Left]) {
    let left: Vec<&Left> = left.iter().filter(|l| l.nonce != 0 && l.deadline != Time::INFINITY).collect();
    if left.is_empty() {
        return;
    }
    let keepers: Vec<i64> = LEAVE.query(
        args![
            left.iter().map(|l| l.task_no).collect::<Vec<_>>(),
            left.iter().map(|l| l.nonce).collect::<Vec<_>>(),
            left.iter().map(|l| l.deadline).collect::<Vec<_>>(),
        ],
        |row| row.need(1),
    );
    for keeper in left.iter().filter(|l| keepers.contains(&l.task_no)) {
        before_commit::hand_on(keeper.deadline, keeper.task_no);
    }
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
    use super::by_chance;

    #[test]
    fn any_task_may_become_the_keeper_and_none_too_often() {
        let mut met = [0; 10];
        for base in 0..10_000 {
            met[by_chance(base << 7, 10)] += 1;
        }
        assert!(met.iter().all(|times| (800..1200).contains(times)), "{met:?}");
        assert_eq!(by_chance(i64::MAX, 1), 0);
    }
}
