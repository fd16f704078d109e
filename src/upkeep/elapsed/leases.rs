//! Leases whose time has come, as they are found, and which of their tasks are still held.

use pgrx::pg_sys::ItemPointerData;

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Record, Statement};
use crate::token::{Base, Nonce};

/// A lease whose time has come.
pub(super) struct Elapsed {
    row: ItemPointerData,
    deadline: Time,
    keeper: TaskNo,
    base: Base,
    /// How many tasks it was for.
    tasks: usize,
    /// Those of its tasks that are still held, with deadlines that have passed.
    pub(super) overdue: Vec<TaskNo>,
    /// Those that were parked in place until then.
    pub(super) aside: Vec<TaskNo>,
}

/// What was parked in place until a time has a lease for that, beside the one of its performance, which has ended before. (One without a
/// performance has a deadline that never comes.) By that one alone it is not looked at: what one call has parked, as since
/// its group is paused, the next would make ready once more, as long as there is another task under the lease.
///
/// Walks `lease_deadline_idx`, from a deadline and keeper on, up to so many leases or tasks, one lease at least, and asks the
/// tasks. Locks nothing.
static PASSED_LEASES: Statement<(Time, Time, TaskNo, i32, i64), Elapsed> = Statement::new(
    c"SELECT l.place, l.deadline, l.keeper_no, l.base, l.tasks, t.overdue, t.aside
        FROM (SELECT l.*, sum(l.tasks) OVER (ORDER BY l.deadline, l.keeper_no ROWS UNBOUNDED PRECEDING) - l.tasks AS before
                FROM (SELECT l.ctid AS place, l.deadline, l.keeper_no, l.base, l.others,
                             1 + COALESCE(pg_catalog.cardinality(l.others), 0)::bigint AS tasks
                        FROM taskq.lease l
                       WHERE l.deadline <= $1 AND (l.deadline, l.keeper_no) > ($2, $3)
                       ORDER BY l.deadline, l.keeper_no LIMIT $4) AS l) AS l
       CROSS JOIN LATERAL (
             SELECT pg_catalog.array_agg(r.task_no) FILTER (WHERE r.aside IS NULL) AS overdue,
                    pg_catalog.array_agg(r.task_no) FILTER (WHERE r.aside IS NOT NULL) AS aside
               FROM unnest(l.keeper_no || l.others) AS n(task_no)
              CROSS JOIN LATERAL (
                    SELECT r.task_no, r.aside FROM taskq.run r
                     WHERE r.task_no = n.task_no AND r.nonce = l.base # n.task_no
                       AND CASE WHEN r.aside IS NULL THEN NOT r.grantable AND r.deadline <= $1
                                ELSE l.deadline > r.deadline OR r.deadline = 'infinity' END OFFSET 0) AS r) AS t
       WHERE l.before < $5
       ORDER BY l.deadline, l.keeper_no",
);

type TaskNos = Option<Vec<TaskNo>>;

impl Record for Elapsed {
    type Columns = (ItemPointerData, Time, TaskNo, Base, i64, TaskNos, TaskNos);

    fn of((row, deadline, keeper, base, tasks, overdue, aside): Self::Columns) -> Self {
        let (overdue, aside) = (overdue.unwrap_or_default(), aside.unwrap_or_default());
        Elapsed { row, deadline, keeper, base, tasks: tasks as usize, overdue, aside }
    }
}

impl Elapsed {
    /// Where its row lies, for removing it.
    pub(super) fn row(&self) -> ItemPointerData {
        self.row
    }

    /// What each of its tokens is made of, and the task that it is kept under.
    pub(super) fn key(&self) -> (Base, TaskNo) {
        (self.base, self.keeper)
    }

    /// No task needs it any more.
    pub(super) fn is_stale(&self) -> bool {
        self.overdue.is_empty() && self.aside.is_empty()
    }

    /// Some of its tasks with their nonces.
    pub(super) fn tokens(&self, tasks: &[TaskNo]) -> impl Iterator<Item = (TaskNo, Nonce)> {
        tasks.iter().map(|task_no| (*task_no, self.base.nonce(*task_no)))
    }

    /// How many leases it counts for.
    pub(super) fn weight(&self) -> usize {
        (self.overdue.len() + self.aside.len()).div_ceil(10)
    }
}

/// What one statement has looked at.
pub(super) struct Window {
    /// The leases, earliest deadline first.
    pub(super) leases: Vec<Elapsed>,
    /// There may be leases behind these.
    pub(super) is_cut: bool,
}

/// How many leases one statement looks at, at most.
const LEASES: usize = 200;
/// How many leases one walk looks at, at most.
const LEASES_OF_A_WALK: usize = 10_000;

/// Of how many tasks they are. Few at first: it has to be short, and where many call, each sees what others are at.
const FIRST_TASKS: usize = 200;
const MOST_TASKS: usize = 2_000;

/// The leases whose time has come, earliest first, in windows: those from `start` on.
pub(super) fn windows(start: Time, now: Time) -> impl Iterator<Item = Window> {
    let mut from = Some((start, TaskNo(i64::MIN)));
    let mut tasks = FIRST_TASKS;
    (0..LEASES_OF_A_WALK / LEASES).map_while(move |_| {
        let (deadline, keeper) = from?;
        check_for_interrupts();
        let leases: Vec<Elapsed> = PASSED_LEASES.query((now, deadline, keeper, LEASES as i32, tasks as i64));
        let seen: usize = leases.iter().map(|lease| lease.tasks).sum();
        let is_cut = leases.len() == LEASES || seen >= tasks;
        from = leases.last().filter(|_| is_cut).map(|l| (l.deadline, l.keeper));
        tasks = (4 * tasks).min(MOST_TASKS);
        Some(Window { leases, is_cut })
    })
}
