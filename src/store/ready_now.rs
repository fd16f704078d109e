//! Entries of a group or workgroup that are ready where they are: no claim has moved them out of its way, but calls
//! that sleep may have passed over them.

use crate::pg::statement::{Statement, sql};
use crate::wake;

/// The actions of those of the tasks with this value of the column of `task` that are ready.
macro_rules! ready {
    ($of:literal) => {
        Statement::new(sql!(
            "SELECT DISTINCT r.action_no
               FROM (SELECT t.task_no FROM taskq.task t WHERE t.",
            $of,
            " = $1 OFFSET 0) AS t
              CROSS JOIN LATERAL (SELECT r.action_no FROM taskq.run r
                                   WHERE r.task_no = t.task_no AND r.grantable OFFSET 0) AS r"
        ))
    };
}

static OF_GROUP: Statement<&str, i32> = ready!("group_id");
static OF_WORKGROUP: Statement<&str, i32> = ready!("workgroup");

/// Has every call that waits for an action with such entries look again.
pub(crate) fn wake_all_of_group(group: &str) {
    OF_GROUP.query(group).into_iter().for_each(wake::ready_for_all);
}

/// [`wake_all_of_group`], of a workgroup.
pub(crate) fn wake_all_of_workgroup(workgroup: &str) {
    OF_WORKGROUP.query(workgroup).into_iter().for_each(wake::ready_for_all);
}
