//! The table `blocked`: tasks that wait for other tasks, and signals; the row of each is its counter.

use crate::ends::touched::{self, Touch};
use crate::number::{TaskNo, WaitNo};
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::pg::table::{self, Change, Index, Key, Look, Row, Scan, Wait, look, table};
use crate::store::live_row::{Counter, Live, Place};
use crate::store::task;
use crate::wake;

table!(c"blocked":
    TASK_NO: TaskNo,
    REMAINING: i32,
    FAILURES: i32,
    DEPENDENCIES: i32,
    TRIES: i32,
    NOT_BEFORE: Option<Time>,
    ACTION_NO: i32,
    SPARE: i32,
    WAIT_NO: WaitNo,
    SINCE: Option<Time>,
    UNTIL: Option<Time>;
    c"blocked_until_idx" where SINCE Something
);

static BY_NUMBER: Index = Index::new(&TABLE, c"blocked_pkey");

/// By until: suspended tasks.
static SUSPENDED: Index = Index::of_mostly_empty(&TABLE, c"blocked_until_idx");

/// The first time from a time on that has passed, and until which a task was to be suspended at most.
pub(super) fn first_until(look: &Look, from: Time, now: Time) -> Option<Time> {
    let keys = [Key::at_least(1, from), Key::at_most(1, now)];
    look.first(&SUSPENDED, &keys, |row| row.get(UNTIL)).flatten()
}

/// Keeps other sessions from locking the table exclusively, until this transaction, or a subtransaction that is rolled back, ends.
pub(crate) fn hold() {
    table::hold(&TABLE);
}

/// What a task that waits has to count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct News {
    /// The task that waits.
    pub(crate) task_no: TaskNo,
    /// For which of the task's waits.
    pub(crate) wait_no: WaitNo,
    /// Dependencies that have ended as they should.
    pub(crate) satisfied: i32,
    /// Dependencies that have ended the wrong way. When it can do without no more of them, the task waits no longer.
    pub(crate) lost: i32,
    /// Of both, how many aborted.
    pub(crate) failed: i32,
    /// When they settled; `None`: in time.
    pub(crate) settled_at: Option<Time>,
}

/// What became of counters.
#[derive(Default)]
pub(crate) struct Counted {
    /// These wait no more; their rows are removed, and this is what they would have been.
    pub(crate) over: Vec<Live>,
    /// Another transaction has these.
    pub(crate) busy: Vec<(TaskNo, WaitNo)>,
    /// These the look has not seen, or another transaction has removed them since.
    pub(crate) not_there: Vec<(TaskNo, WaitNo)>,
}

/// Counts down, in the order given, which is that of the numbers; waits for no lock on a row. A counter that this
/// transaction has locked for a change is not busy.
///
/// A counter that another transaction has changed since the look, and committed, is counted down in its newest version:
/// nothing of what was read before is used then.
pub(crate) fn count_down(news: &[News]) -> Counted {
    let mut counted = Counted::default();
    look(|look| {
        look.changing(&BY_NUMBER, |rows| {
            for news in news {
                check_for_interrupts();
                match count_one(rows, news, &mut counted) {
                    Change::Done => {}
                    Change::Busy => counted.busy.push((news.task_no, news.wait_no)),
                    Change::Gone | Change::Newer => counted.not_there.push((news.task_no, news.wait_no)),
                }
            }
        });
    });
    counted
}

fn count_one(rows: &mut Scan, news: &News, counted: &mut Counted) -> Change {
    rows.start(&[Key::eq(1, news.task_no)]);
    let Some(row) = rows.next() else { return Change::Gone };
    match change(&row, news, counted) {
        Change::Newer => {
            row.newest(Wait::No, |row| change(row, news, counted)).unwrap_or_else(|in_the_way| in_the_way)
        }
        change => change,
    }
}

fn change(row: &Row, news: &News, counted: &mut Counted) -> Change {
    let wait_no = row.get(WAIT_NO);
    if wait_no != news.wait_no || is_late(row, news) {
        // It waits for others by now, or no longer than until then: this comes too late, and counts for nothing.
        return Change::Done;
    }
    let (remaining, spare) = (row.get(REMAINING) - news.satisfied, row.get(SPARE) - news.lost);
    let failures = row.get(FAILURES) + news.failed;
    if remaining > 0 && (news.lost == 0 || spare >= 0) {
        let change = row.update(&[REMAINING.to(remaining), SPARE.to(spare), FAILURES.to(failures)]);
        if change == Change::Done {
            // At once: whatever ends this transaction from here on, what others leave for the counter meanwhile is
            // looked at.
            touched::look_again(&[news.task_no], Touch::Locked);
        }
        return change;
    }
    let change = row.delete(Wait::No);
    if change == Change::Done {
        touched::removed(news.task_no);
        counted.over.push(Live {
            task_no: news.task_no,
            place: Place::Blocked(Counter {
                remaining,
                spare,
                not_before: row.get(NOT_BEFORE),
                wait_no,
                since: row.get(SINCE),
            }),
            tries: row.get(TRIES),
            failures,
            dependencies: row.get(DEPENDENCIES),
            granted_at: None,
            deadline: Time::INFINITY,
            actor_id: None,
            limited: false,
            keyed: false,
        });
    }
    change
}

/// Whether the time of a suspended task was over before.
fn is_late(row: &Row, news: &News) -> bool {
    let Some(settled_at) = news.settled_at else { return false };
    row.get(SINCE).is_some() && row.get(UNTIL).is_some_and(|until| until < settled_at)
}

/// Removes the counters of these tasks.
pub(crate) static REMOVE: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.blocked b WHERE b.task_no = ANY ($1)");

/// More dependencies of tasks that need all of theirs.
pub(crate) static RAISE: Statement<(&[TaskNo], i32, i32, i32)> = Statement::new(
    c"UPDATE taskq.blocked b
         SET remaining = b.remaining + $2, dependencies = b.dependencies + $3, failures = b.failures + $4
       WHERE b.task_no = ANY ($1)",
);

/// More dependencies of tasks that need some of theirs only.
pub(crate) static SPARE_MORE: Statement<(&[TaskNo], i32)> = Statement::new(
    c"UPDATE taskq.blocked b SET spare = b.spare + $2, dependencies = b.dependencies + $2
       WHERE b.task_no = ANY ($1)",
);

/// A task that is to wait.
pub(crate) struct New {
    /// The task that waits.
    pub(crate) task_no: TaskNo,
    /// The task's; `None`: to be looked up.
    pub(crate) action_no: Option<i32>,
    /// What it has to count.
    pub(crate) counter: Counter,
    /// How many of its dependencies have aborted.
    pub(crate) failures: i32,
    /// How many dependencies it has in all.
    pub(crate) dependencies: i32,
    /// Tries so far.
    pub(crate) tries: i32,
    /// Until when at most, if it is suspended.
    pub(crate) until: Option<Time>,
}

impl New {
    /// One that has not been tried, and of whose dependencies none counts yet.
    pub(crate) fn of(task_no: TaskNo, action_no: Option<i32>, counter: Counter) -> Self {
        New { task_no, action_no, counter, failures: 0, dependencies: 0, tries: 0, until: None }
    }
}

/// Inserts counters of tasks that have none.
pub(crate) fn insert(rows: impl Iterator<Item = New>) {
    look(|look| {
        look.scan(&task::BY_NUMBER, |tasks| {
            table::insert(&TABLE, |into| {
                for row in rows {
                    check_for_interrupts();
                    let action_no = row.action_no.unwrap_or_else(|| task::action_no(tasks, row.task_no));
                    into.row(|| {
                        [
                            TASK_NO.to(row.task_no),
                            REMAINING.to(row.counter.remaining),
                            FAILURES.to(row.failures),
                            DEPENDENCIES.to(row.dependencies),
                            TRIES.to(row.tries),
                            NOT_BEFORE.to(row.counter.not_before),
                            ACTION_NO.to(action_no),
                            SPARE.to(row.counter.spare),
                            WAIT_NO.to(row.counter.wait_no),
                            SINCE.to(row.counter.since),
                            UNTIL.to(row.until),
                        ]
                    });
                    if let Some(until) = row.until {
                        wake::timer(until);
                    }
                }
            });
        });
    });
}

/// What a task has to count that this transaction has put here.
pub(crate) static SET: Statement<(TaskNo, i32, i32, i32)> = Statement::new(
    c"UPDATE taskq.blocked b SET remaining = $2, failures = $3, dependencies = $4 WHERE b.task_no = $1",
);

/// Suspended tasks wait until another time.
pub(crate) static PUT_OFF: Statement<(&[TaskNo], Time)> =
    Statement::new(c"UPDATE taskq.blocked b SET until = $2 WHERE b.task_no = ANY ($1)");

/// What tasks have to count, whose counters the caller has locked: remaining, spare, failures, dependencies.
pub(crate) static COUNT: Statement<(&[TaskNo], &[i32], &[i32], &[i32], &[i32])> = Statement::new(
    c"UPDATE taskq.blocked b
         SET remaining = u.remaining, spare = u.spare, failures = u.failures, dependencies = u.dependencies
        FROM unnest($1, $2, $3, $4, $5) AS u(task_no, remaining, spare, failures, dependencies)
       WHERE b.task_no = u.task_no",
);

/// What `delay_children`, `retry_after` or the like has set besides the tasks' own times is forgotten: these are new.
pub(crate) static FORGET_DELAY: Statement<&[TaskNo]> =
    Statement::new(c"UPDATE taskq.blocked b SET not_before = NULL WHERE b.task_no = ANY ($1)");

/// The tasks are not granted before this time, nor before what was set so far.
pub(crate) static POSTPONE: Statement<(&[TaskNo], Time)> = Statement::new(
    c"UPDATE taskq.blocked b SET not_before = GREATEST(b.not_before, $2) WHERE b.task_no = ANY ($1)",
);
