//! The operator `taskq.===`: two numbers are the same, and a join on that is by look-ups.
//!
//! Views are planned in the user's session, with statistics that may be those of an empty queue. A table may be taken to have
//! one row then, and to go through the whole of an index for each row of another table seems to cost as much as a look-up. An
//! equality leaves the planner that choice. This operator can be no key of a hash, of a merge or of an order, so that
//! nothing is gained by a whole index; it may be used from either side, wherever an index begins with the number; and
//! whatever else is done with it is said to be dear (see `sql/functions.sql`). With whole tables on both sides the join
//! is a look-up per row, which is linear. (A subquery with `OFFSET 0` is as safe, and can be entered from one side only.)
//!
//! What the planner compares before it thinks of joins are the ways to read one table. If it can have the rows from the
//! whole of an index alone, or from one that a constant condition allows it to ask, it drops look-ups that cost no
//! less. So most views that join with this operator have a condition for a table that only the table itself can answer: one
//! that is always true, where it needs none, and a CASE around one that an index could be asked for.
//!
//! The planner asks for the condition under which it may look into an index, and gets that of an equality.

use pgrx::Internal;
use pgrx::pg_sys;
use pgrx::prelude::*;

/// `pg_catalog.=(bigint, bigint)`
const INT8_EQUAL: pg_sys::Oid = pg_sys::Oid::from_u32(410);

/// `taskq._same_support(internal) -> internal`: what the planner may ask of the operator.
#[pg_extern(sql = "")]
fn taskq_same_support(request: Internal) -> Internal {
    // SAFETY: a function with an argument of type `internal` is called by Postgres alone. As the support function of
    // another it is given a node, whose tag tells which request it is.
    let condition = unsafe {
        let node =
            request.unwrap().map_or(std::ptr::null_mut(), |datum| datum.cast_mut_ptr::<pg_sys::Node>());
        if node.is_null() || (*node).type_ != pg_sys::NodeTag::T_SupportRequestIndexCondition {
            None
        } else {
            index_condition(&mut *node.cast::<pg_sys::SupportRequestIndexCondition>())
        }
    };
    // No list says no; a NULL of SQL would be an error.
    Internal::from(Some(pg_sys::Datum::from(condition.unwrap_or(std::ptr::null_mut()))))
}

/// A list of one condition that the index can be asked for, or nothing.
///
/// # Safety
/// `request` must be what the planner has passed to a support function of this operator.
unsafe fn index_condition(request: &mut pg_sys::SupportRequestIndexCondition) -> Option<*mut pg_sys::List> {
    // A later column of an index may be a walk through the whole of it.
    if request.indexcol != 0 || request.opfamily != pg_sys::INTEGER_BTREE_FAM_OID {
        return None;
    }
    // SAFETY: the clause is an operator or a function call, with a list of arguments; that of the index is one of the
    // two. What is made here lives in the planner's memory.
    unsafe {
        let arguments = match (*request.node).type_ {
            pg_sys::NodeTag::T_OpExpr => (*request.node.cast::<pg_sys::OpExpr>()).args,
            pg_sys::NodeTag::T_FuncExpr => (*request.node.cast::<pg_sys::FuncExpr>()).args,
            _ => return None,
        };
        if arguments.is_null() || (*arguments).length != 2 || !(0..2).contains(&request.indexarg) {
            return None;
        }
        let argument = |n: i32| pg_sys::list_nth(arguments, n).cast::<pg_sys::Node>();
        let (column, other) = (argument(request.indexarg), argument(1 - request.indexarg));
        if !pg_sys::is_pseudo_constant_for_index(request.root, other, request.index) {
            return None;
        }
        let clause = pg_sys::make_opclause(
            INT8_EQUAL,
            pg_sys::BOOLOID,
            false,
            column.cast(),
            other.cast(),
            pg_sys::InvalidOid,
            pg_sys::InvalidOid,
        );
        // The index tells it all.
        request.lossy = false;
        Some(pg_sys::lappend(std::ptr::null_mut(), clause.cast()))
    }
}
