//! Whether the caller's transaction may stay open for long after a call.

use std::cell::Cell;

use pgrx::pg_sys;

/// What is known of the call under way.
struct Call {
    /// Inside a subtransaction of ours: the answer from outside of it. It would pass for a transaction block.
    in_block: Cell<Option<bool>>,
    /// Whether it runs within something that may go on after it ([`called`]).
    is_within: Cell<bool>,
}

thread_local! {
    static CALL: Call = const { Call { in_block: Cell::new(None), is_within: Cell::new(false) } };
}

/// Runs `work`, which raises no error, with this as the answer of [`begun_by_caller`].
pub(super) fn answering<R>(in_block: bool, work: impl FnOnce() -> R) -> R {
    let outside = CALL.with(|call| call.in_block.replace(Some(in_block)));
    let result = work();
    CALL.with(|call| call.in_block.set(outside));
    result
}

/// Whether the caller may hold the transaction open beyond this call: it is in a transaction block, or the call runs
/// within something that may go on after it ([`called`]).
pub(crate) fn in_transaction_block() -> bool {
    CALL.with(|call| call.is_within.get()) || begun_by_caller()
}

/// Whether this is a transaction block to Postgres: one that the caller has begun, the implicit one of several
/// statements that a client has sent together, or a subtransaction, such as a savepoint. In a subtransaction of ours it is
/// what [`in_transaction_block`] has said outside of it.
pub(crate) fn begun_by_caller() -> bool {
    // SAFETY: reads a variable.
    CALL.with(|call| call.in_block.get()).unwrap_or_else(|| unsafe { pg_sys::IsTransactionBlock() })
}

/// While it lives [`in_transaction_block`] knows within what the call runs.
pub(crate) struct Called {
    before: bool,
}

impl Drop for Called {
    fn drop(&mut self) {
        CALL.with(|call| call.is_within.set(self.before));
    }
}

/// To be asked at the beginning of a function where [`in_transaction_block`] is to say more than [`begun_by_caller`]. What a
/// client sends alone is over when its query is, and that is when the call is, if the query does nothing else. What runs
/// within a function, a DO block, an INSERT or a CREATE TABLE AS may go on for long; so may a query that works on the
/// rows of its call, or one that is not the first that a client has sent in a pipeline.
pub(crate) fn called(info: pg_sys::FunctionCallInfo) -> Called {
    // SAFETY: Postgres passes the call's data, which are whole as long as it lasts. A portal that runs a query has its
    // executor's state as long as it does so. Functions are looked up when the executor starts, in its memory: that
    // of the portal's query, if it is this query that calls.
    let within = unsafe {
        let portal = pg_sys::ActivePortal;
        let query = if portal.is_null() { std::ptr::null_mut() } else { (*portal).queryDesc };
        let state = if query.is_null() { std::ptr::null_mut() } else { (*query).estate };
        state.is_null()
            || (*(*info).flinfo).fn_mcxt != (*state).es_query_cxt
            || pg_sys::MyXactFlags & pg_sys::XACT_FLAGS_PIPELINING as i32 != 0
            || !super::query::ends_with_its_call(query)
    };
    Called { before: CALL.with(|call| call.is_within.replace(within)) }
}
