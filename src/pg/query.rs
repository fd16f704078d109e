//! What the query is like that is running.

use pgrx::pg_sys::NodeTag;
use pgrx::{PgList, pg_sys};

/// Whether the query is over as soon as the function has returned that it calls, by what its plan shows: a SELECT from that
/// function alone, or of that function alone, also by way of one WITH. With the rows it does no more than to pass them on,
/// filter, sort, aggregate or limit them, without a volatile function: that may take any time, and so may a join.
///
/// # Safety
/// `query` is a query that the executor is running.
pub(super) unsafe fn ends_with_its_call(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: the plan of a query lives as long as its execution. The type of a node says what else it is.
    unsafe {
        let statement = (*query).plannedstmt;
        if (*statement).commandType != pg_sys::CmdType::CMD_SELECT || (*statement).hasModifyingCTE {
            return false;
        }
        // That of WITH, where there is one; more than one is more than we look through.
        let with = PgList::<pg_sys::Plan>::from_pg((*statement).subplans);
        let mut within = with.is_empty();
        let mut plan = (*statement).planTree;
        loop {
            let calls_in_its_list = match (*plan.cast::<pg_sys::Node>()).type_ {
                NodeTag::T_FunctionScan
                | NodeTag::T_CteScan
                | NodeTag::T_Agg
                | NodeTag::T_Sort
                | NodeTag::T_Limit => false,
                NodeTag::T_Result => (*plan).lefttree.is_null(),
                NodeTag::T_ProjectSet => true,
                _ => return false,
            };
            let list = (*plan).targetlist;
            let works = match calls_in_its_list {
                true => PgList::<pg_sys::TargetEntry>::from_pg(list).len() > 1,
                false => {
                    pg_sys::contain_volatile_functions(list.cast())
                        || pg_sys::contain_volatile_functions((*plan).qual.cast())
                }
            };
            if works || !(*plan).righttree.is_null() {
                return false;
            }
            plan = match (*plan.cast::<pg_sys::Node>()).type_ {
                NodeTag::T_CteScan => match with.get_ptr(0) {
                    Some(plan) if !within && with.len() == 1 => {
                        within = true;
                        plan
                    }
                    _ => return false,
                },
                _ if (*plan).lefttree.is_null() => return within,
                _ => (*plan).lefttree,
            };
        }
    }
}
