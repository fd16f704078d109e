//! Giving way to transactions that wait for a row which many hold.
//!
//! Holders share a row (FOR KEY SHARE), and PostgreSQL lets one more in beside them also while another transaction
//! waits to lock it exclusively. So a steady stream of insertions below one task could keep its return, or its cancel,
//! waiting for ever. A call that is to share rows of `run` therefore checks, before it joins the holders, whether
//! a transaction waits, and if so gives way for a while. The waiting one gets the lock when the holders that
//! were there before it have ended.
//!
//! It gives way for a limited time, and this is no lock: the waiting transaction may wait for this very transaction,
//! which holds other rows that it needs, or for one that its client has left open.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use pgrx::pg_sys::{ItemPointerData, Oid};

use crate::number::TaskNo;
use crate::pg::row_version::is_awaited;
use crate::pg::session::{self, check_for_interrupts};
use crate::pg::statement::Statement;

/// How long a transaction gives way, in all.
const COURTESY: Duration = Duration::from_millis(500);

thread_local! {
    static GIVEN: RefCell<Given> = RefCell::new(Given::default());
}

/// What this transaction has done in the matter.
#[derive(Default)]
struct Given {
    /// When the transaction began, which tells it from others well enough.
    began: i64,
    time: Duration,
    /// What it was to hold before: a transaction that waits for one of these may wait for us.
    held: HashSet<TaskNo>,
}

static PLACES_OF_ROWS: Statement<&[TaskNo], (Oid, ItemPointerData)> =
    Statement::new(c"SELECT r.tableoid, r.ctid FROM taskq.run r WHERE r.task_no = ANY ($1)");

/// To be called before rows of `run` are held: waits a while if others wait for some of them.
pub(super) fn give_way(task_nos: &[TaskNo]) {
    let began = session::transaction_began();
    let (news, left) = GIVEN.with_borrow_mut(|given| {
        if given.began != began {
            *given = Given { began, ..Given::default() };
        }
        let news: Vec<TaskNo> = task_nos.iter().copied().filter(|n| given.held.insert(*n)).collect();
        (news, COURTESY.saturating_sub(given.time))
    });
    let start = Instant::now();
    let mut nap = Duration::from_millis(1);
    while start.elapsed() < left && does_any_wait(&news) {
        check_for_interrupts();
        session::nap(nap);
        nap = (nap * 2).min(Duration::from_millis(10));
    }
    GIVEN.with_borrow_mut(|given| given.time += start.elapsed());
}

fn does_any_wait(task_nos: &[TaskNo]) -> bool {
    let rows: Vec<(Oid, ItemPointerData)> = match task_nos {
        [] => Vec::new(),
        _ => PLACES_OF_ROWS.query(task_nos),
    };
    rows.into_iter().any(|(table, row)| is_awaited(table, row))
}
