//! Lease rows whose keeper is not held any more: removed, or handed on to a task that is.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use pgrx::pg_sys::{self, ItemPointerData};

use super::{TABLE, append};
use crate::ends::before_commit;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::{Record, Statement, sql};
use crate::pg::table::pages_of;
use crate::token::{Base, Nonce, in_pieces};

/// A row of `lease` whose keeper has left it.
struct Unkept {
    row: ItemPointerData,
    deadline: Time,
    base: Base,
    keeper: TaskNo,
    others: Vec<TaskNo>,
}

impl Record for Unkept {
    type Columns = (ItemPointerData, Time, Base, TaskNo, Option<Vec<TaskNo>>);

    fn of((row, deadline, base, keeper, others): Self::Columns) -> Self {
        Unkept { row, deadline, base, keeper, others: others.unwrap_or_default() }
    }
}

/// When a row passes on that some task still needs. A row that is locked cannot be read by upkeep when its time comes,
/// and a transaction may stay open for long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HandOn {
    Now,
    BeforeCommit,
}

/// Whether the keeper of `l` is neither held under it nor parked in place. Its own deadline is an earlier one where its
/// row was locked when that passed; a later one has a row of its own.
macro_rules! unkept {
    () => {
        "NOT EXISTS (SELECT FROM taskq.run r
                      WHERE r.task_no = l.keeper_no AND r.nonce = l.base # l.keeper_no AND NOT r.grantable
                        AND (r.deadline <= l.deadline OR r.aside IS NOT NULL) OFFSET 0)"
    };
}

static LEFT_BY: Statement<(&[Time], &[TaskNo]), Unkept> = Statement::new(sql!(
    "SELECT l.ctid, l.deadline, l.base, l.keeper_no, l.others
           FROM unnest($1, $2) AS u(deadline, keeper_no)
          CROSS JOIN LATERAL (SELECT l.ctid, l.deadline, l.base, l.keeper_no, l.others FROM taskq.lease l
                               WHERE l.deadline = u.deadline AND l.keeper_no = u.keeper_no OFFSET 0) AS l
          WHERE ",
    unkept!()
));

static STILL_HELD: Statement<(&[TaskNo], &[Nonce]), (TaskNo, Nonce, Time)> = Statement::new(
    c"SELECT r.task_no, r.nonce, r.deadline FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND NOT r.grantable",
);

/// By their place: nothing that a snapshot of this call has seen gives its place to another row before the call ends.
static REMOVE_ROWS: Statement<&[ItemPointerData], (Base, TaskNo)> = Statement::new(
    c"DELETE FROM taskq.lease d
       WHERE d.ctid = ANY (ARRAY(SELECT l.ctid FROM taskq.lease l WHERE l.ctid = ANY ($1) FOR UPDATE SKIP LOCKED))
      RETURNING d.base, d.keeper_no",
);

/// Removes rows of `lease` that no other transaction has locked; the bases and keepers of those that are
/// gone.
pub(crate) fn remove(rows: Vec<ItemPointerData>) -> HashSet<(Base, TaskNo)> {
    if rows.is_empty() {
        return HashSet::new();
    }
    REMOVE_ROWS.query(rows).into_iter().collect()
}

/// Removes the rows that no task needs any more, and hands on those that some need.
fn clear(mut rows: Vec<Unkept>, hand_on: HandOn) {
    if rows.is_empty() {
        return;
    }
    let others = || rows.iter().flat_map(|row| row.others.iter().map(|n| (*n, row.base.nonce(*n))));
    let held: HashMap<(TaskNo, Nonce), Time> = in_pieces(others())
        .into_iter()
        .flat_map(|(task_nos, nonces)| {
            STILL_HELD.map((task_nos, nonces), |(task_no, nonce, deadline)| ((task_no, nonce), deadline))
        })
        .collect();
    for row in &mut rows {
        let (base, latest) = (row.base, row.deadline);
        row.others.retain(|n| held.get(&(*n, base.nonce(*n))).is_some_and(|deadline| *deadline <= latest));
    }
    if hand_on == HandOn::BeforeCommit {
        let needed = rows.extract_if(.., |row| !row.others.is_empty());
        needed.for_each(|row| before_commit::hand_on(row.deadline, row.keeper));
    }
    let gone = remove(rows.iter().map(|row| row.row).collect());
    for row in rows {
        if !row.others.is_empty() && gone.contains(&(row.base, row.keeper)) {
            append(row.deadline, row.base, row.others);
        }
    }
}

/// Hands on the rows that these tasks kept, with the deadlines of these, if they do not keep them any more.
pub(crate) fn hand_on(mut left: Vec<(Time, TaskNo)>) {
    if left.is_empty() {
        return;
    }
    // One that came back, in a savepoint that was undone, and once more is there twice.
    left.sort_unstable();
    left.dedup();
    let (deadlines, keepers): (Vec<Time>, Vec<TaskNo>) = left.into_iter().unzip();
    clear(LEFT_BY.query((deadlines, keepers)), HandOn::Now);
}

/// A backend looks at a page for so many rows that it has appended.
const PATROL: u32 = 32;

thread_local! {
    /// How many rows were appended since the last look; `None` before the first of all.
    static APPENDED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A scan of one page, however many dead rows the index has.
static ON_PAGE: Statement<(ItemPointerData, ItemPointerData), Unkept> = Statement::new(sql!(
    "SELECT l.ctid, l.deadline, l.base, l.keeper_no, l.others FROM taskq.lease l
          WHERE l.ctid >= $1 AND l.ctid < $2 AND ",
    unkept!()
));

/// Now and then looks at a page of `lease`, any one, for rows without a keeper. One look for thirty-two new rows finds
/// several times as many where most are too many; so those stay few against the others.
pub(super) fn patrol(appended: u32, by: i64) {
    // A backend that makes only one grant takes its part, too: it begins anywhere.
    let so_far = APPENDED.get().unwrap_or((by >> 5) as u32 % PATROL) + appended;
    APPENDED.set(Some(so_far % PATROL));
    if so_far < PATROL {
        return;
    }
    let pages = pages_of(&TABLE);
    if pages > 0 {
        let page = ((by as u64 >> 16) % u64::from(pages)) as u32;
        let rows = ON_PAGE.query((start_of(page), start_of(page + 1)));
        clear(rows, HandOn::BeforeCommit);
    }
}

/// Where a page begins.
fn start_of(page: u32) -> ItemPointerData {
    ItemPointerData {
        ip_blkid: pg_sys::BlockIdData { bi_hi: (page >> 16) as u16, bi_lo: page as u16 },
        ip_posid: 0,
    }
}
