//! Slots for performances that began before there was a limit: a limit that is set counts what is in progress.

use super::{Ask, Assignment, Limit, lock_free, occupy};
use crate::number::TaskNo;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::Statement;

/// Those that are missing. The caller has changed the action's row in `action_setting`, which keeps others
/// from it.
static MAKE_ALL: Statement<(&str, i32)> = Statement::new(
    c"INSERT INTO taskq.slot (group_id, name, slot_no)
      SELECT '', $1, g.n FROM pg_catalog.generate_series(1, $2) AS g(n)
       WHERE NOT EXISTS (SELECT FROM taskq.slot s
                          WHERE s.group_id = '' AND s.name = $1 AND s.slot_no = g.n OFFSET 0)",
);
static DROP: Statement<(&str, i32)> = Statement::new(
    c"DELETE FROM taskq.slot s
       WHERE s.ctid = ANY (ARRAY(
                SELECT f.ctid FROM taskq.slot f
                 WHERE f.group_id = '' AND f.name = $1 AND f.slot_no > $2 AND f.task_no IS NULL
                   FOR UPDATE SKIP LOCKED))",
);

/// Makes the slots of a limit of an action that are missing. `held` are performances that began without a slot. They are given slots,
/// above the limit where it is full, so that they count.
pub(crate) fn fit_action(action: &str, most: i32, held: &[TaskNo]) {
    assign_transaction_id();
    MAKE_ALL.execute((action, most));
    assign(&Limit::of_action(action), most, held);
}

/// Removes the slots of an action above its limit (`None`: all), if they are free; the others go with a later call.
///
/// It is the last thing that a call does with locks. A slot that was free in the snapshot of the statement may be held by the time
/// its row is locked, and stays locked then: the session that ends the performance waits for this transaction, and has the
/// performance's row locked. So this transaction must not wait for any such row after it.
pub(crate) fn drop_above(action: &str, most: Option<i32>) {
    DROP.execute((action, most.unwrap_or(0)));
}

static ADD: Statement<(&str, &str, i32, &[TaskNo])> = Statement::new(
    c"INSERT INTO taskq.slot (group_id, name, slot_no, task_no)
      SELECT $1, $2, GREATEST($3, (SELECT pg_catalog.max(s.slot_no) FROM taskq.slot s
                                    WHERE s.group_id = $1 AND s.name = $2)) + u.n, u.task_no
        FROM pg_catalog.unnest($4) WITH ORDINALITY AS u(task_no, n)",
);
static MARK: Statement<&[TaskNo]> =
    Statement::new(c"UPDATE taskq.run r SET limited = true WHERE r.task_no = ANY ($1)");

/// Gives slots to performances that have none of this limit, above it where it is full. The caller has locked their
/// rows, and for a group [`super::keep_from_making`].
pub(crate) fn assign(limit: &Limit, most: i32, held: &[TaskNo]) {
    if held.is_empty() {
        return;
    }
    let ask = Ask { limit: limit.clone(), most, wanted: held.len() as i32 };
    let free = lock_free(&[ask]).slots.pop().unwrap_or_default();
    let (some, others) = held.split_at(free.len());
    let assigned: Vec<Assignment> = free
        .iter()
        .zip(some)
        .map(|(position, n)| Assignment { limit, position: *position, task_no: *n })
        .collect();
    occupy(&assigned);
    if !others.is_empty() {
        assign_transaction_id();
        ADD.execute((limit.group.clone(), limit.action.clone(), most, others));
    }
    MARK.execute(held);
}

/// Performances of an action, found in both indexes of claiming.
static HELD_IN_ACTION: Statement<&str, TaskNo> = Statement::new(
    c"SELECT h.task_no
        FROM (SELECT r.task_no FROM taskq.action a JOIN taskq.run r ON r.action_no = a.action_no
               WHERE a.name = $1 AND r.lane = 0 AND NOT r.grantable AND r.aside IS NULL
               UNION ALL
              SELECT r.task_no FROM taskq.action a JOIN taskq.run r ON r.action_no = a.action_no
               WHERE a.name = $1 AND r.lane <> 0 AND NOT r.grantable AND r.aside IS NULL) AS h",
);
static HELD_IN_GROUP: Statement<&str, TaskNo> = Statement::new(
    c"SELECT t.task_no FROM taskq.task t
       CROSS JOIN LATERAL (SELECT FROM taskq.run r WHERE r.task_no = t.task_no AND NOT r.grantable AND r.aside IS NULL OFFSET 0) AS r
       WHERE t.group_id = $1",
);
/// Those of the tasks that are in progress and hold no slot of a limit: of the action $2, of their group in it ($3), or,
/// if the name is empty, of their group.
static WITHOUT_SLOT: Statement<(&[TaskNo], &str, bool), (TaskNo, String)> = Statement::new(
    c"SELECT r.task_no, COALESCE(t.group_id, '')
        FROM taskq.run r
       CROSS JOIN LATERAL (SELECT t.group_id FROM taskq.task t WHERE t.task_no = r.task_no OFFSET 0) AS t
       WHERE r.task_no = ANY ($1) AND NOT r.grantable AND r.aside IS NULL AND (t.group_id IS NOT NULL OR NOT $3)
         AND NOT EXISTS (SELECT FROM taskq.slot s
                          WHERE s.task_no = r.task_no AND s.name = $2
                            AND s.group_id = CASE WHEN $3 THEN t.group_id ELSE '' END OFFSET 0)
       ORDER BY r.task_no",
);
static LOCK_HELD: Statement<&[TaskNo], TaskNo> = Statement::new(
    c"SELECT r.task_no FROM taskq.run r WHERE r.task_no = ANY ($1) AND NOT r.grantable AND r.aside IS NULL
       ORDER BY r.task_no FOR UPDATE",
);

/// Performances of an action that hold no slot of its own limit, or (`by_group`) none of the limit per group; with
/// their groups. They are locked, in the order of numbers.
pub(crate) fn without_slot_in_action(action: &str, by_group: bool) -> Vec<(TaskNo, String)> {
    without_slot(HELD_IN_ACTION.query(action), action, by_group)
}

/// The same of a group and its own limit.
pub(crate) fn without_slot_in_group(group: &str) -> Vec<(TaskNo, String)> {
    without_slot(HELD_IN_GROUP.query(group), "", true)
}

/// Asks again once the rows are locked: a performance may have ended meanwhile, or begun with a slot. Asks only of those that are
/// locked: a task that was granted since is not locked, and could end before it has a slot.
fn without_slot(held: Vec<TaskNo>, action: &str, by_group: bool) -> Vec<(TaskNo, String)> {
    let look = |held: Vec<TaskNo>| -> Vec<(TaskNo, String)> { WITHOUT_SLOT.query((held, action, by_group)) };
    let held: Vec<TaskNo> = look(held).into_iter().map(|(task_no, _)| task_no).collect();
    if held.is_empty() {
        return Vec::new();
    }
    look(LOCK_HELD.query(held))
}
