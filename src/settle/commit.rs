//! One more look at deferred signals right before a transaction commits.
//!
//! When two transactions settle dependencies of one task in overlapping time, one of them defers its
//! signal. Whichever commits last finds, in this look, the counter free and the other's signal committed,
//! and folds it: the task is released, or completes, in the very transaction that settles its last
//! dependency. Only if both are between this look and the end of their commit is the signal left to the
//! next caller of the queue.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use pgrx::pg_sys::{self, OIDOID};
use pgrx::{PgXactCallbackEvent, register_xact_callback};

use super::fold;
use crate::pg::clock;
use crate::pg::session;
use crate::pg::statement::{Statement, args};

thread_local! {
    /// Tasks whose counters this transaction has locked or would have liked to. A hint: more than
    /// needed costs a look, and a savepoint that rolled back leaves no more than that.
    static TOUCHED: RefCell<BTreeSet<i64>> = const { RefCell::new(BTreeSet::new()) };
    /// The function to call; looked up while the transaction can still look things up cheaply.
    static FUNCTION: Cell<pg_sys::Oid> = const { Cell::new(pg_sys::InvalidOid) };
}

static FIND: Statement =
    Statement::new(c"SELECT 'taskq._before_commit()'::pg_catalog.regprocedure::pg_catalog.oid", &[]);

/// Looks at the deferred signals of these tasks again before the transaction commits.
pub(crate) fn look_again(task_nos: Vec<i64>) {
    if task_nos.is_empty() {
        return;
    }
    let first = TOUCHED.with_borrow_mut(|touched| {
        let first = touched.is_empty();
        touched.extend(task_nos);
        first
    });
    if first {
        debug_assert_eq!(OIDOID, <pg_sys::Oid as pgrx::IntoDatum>::type_oid());
        FUNCTION.set(FIND.first(args![], |row| row.need(1)).unwrap_or(pg_sys::InvalidOid));
        register_xact_callback(PgXactCallbackEvent::PreCommit, || {
            // Through SQL, for the owner's rights and the planner settings that come with it.
            session::call_without_arguments(FUNCTION.get());
        });
        register_xact_callback(PgXactCallbackEvent::PrePrepare, || {
            session::call_without_arguments(FUNCTION.get());
        });
        register_xact_callback(PgXactCallbackEvent::Abort, || {
            TOUCHED.take();
        });
    }
}

/// The body of `taskq._before_commit()`.
pub(crate) fn before_commit() {
    // Folding may lock counters further down; they are looked at once more, but not for ever: each round
    // has folded something that another transaction committed meanwhile.
    for _ in 0..100 {
        let touched: Vec<i64> = TOUCHED.take().into_iter().collect();
        if touched.is_empty() || !fold::of(&touched, clock::now()) {
            break;
        }
    }
    TOUCHED.take();
}
