//! Which tries a call that is about to sleep ends: those of which something may come for it.
//!
//! What comes to nothing it could not show to anybody before it ends: it would undo it, begin anew with its next look, and be in
//! the way of others who do the same. So a try is left to others whose end makes no task of the call's actions ready (its own, for another
//! try), lets no task go that depends on it, and frees no place of a limit and no merge key that may be what the call waits for. Asked
//! before anything is locked: an attempt costs the call a transaction id, with which it sleeps if nothing comes of it.

use std::collections::HashSet;

use super::leases::Elapsed;
use crate::flow::actions::try_limits;
use crate::number::TaskNo;
use crate::pg::statement::{Statement, record};

record! {
    /// What the end of a try of a task would concern.
    struct Concerns {
        task_no: TaskNo,
        tries: i32,
        /// It has a place of some limit.
        limited: bool,
        /// One of them is that of a group, whatever the action.
        of_group: bool,
        keyed: bool,
        /// Other tasks depend on it.
        awaited: bool,
    }
}

static CONCERNS: Statement<&[TaskNo], Concerns> = Statement::new(
    c"SELECT r.task_no, r.tries, r.limited,
             r.limited AND EXISTS (SELECT FROM taskq.task_group g
                                    WHERE g.group_id = t.group_id AND g.max_concurrency IS NOT NULL OFFSET 0),
             r.keyed, EXISTS (SELECT FROM taskq.dependency d WHERE d.after_no = r.task_no OFFSET 0)
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT r.task_no, r.tries, r.limited, r.keyed FROM taskq.run r
                            WHERE r.task_no = u.task_no OFFSET 0) AS r
       CROSS JOIN LATERAL (SELECT t.group_id FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t",
);

/// The leases with those of their tasks whose ends may be of use to a call for these actions.
pub(super) fn only(mut leases: Vec<Elapsed>, action_nos: &[i32]) -> Vec<Elapsed> {
    let overdue: Vec<TaskNo> =
        leases.iter().flat_map(|lease| &lease.overdue).map(|task| task.task_no).collect();
    if overdue.is_empty() {
        return leases;
    }
    let own: HashSet<TaskNo> = leases
        .iter()
        .flat_map(|lease| &lease.overdue)
        .filter(|task| task.is_of(action_nos))
        .map(|task| task.task_no)
        .collect();
    let limits = try_limits(&overdue);
    let of_use: HashSet<TaskNo> = CONCERNS
        .query(overdue.as_slice())
        .into_iter()
        .filter(|task| {
            let limit = limits.get(&task.task_no).copied().unwrap_or_default();
            // How many deadlines it has missed is not asked.
            let ends = limit.max_timeouts.is_some() || limit.max_tries.is_some_and(|max| task.tries >= max);
            let goes_on = limit.max_timeouts.is_some() || !ends;
            let own = own.contains(&task.task_no);
            task.of_group || task.awaited && ends || own && (goes_on || task.limited || task.keyed)
        })
        .map(|task| task.task_no)
        .collect();
    for lease in &mut leases {
        let all = lease.overdue.len();
        lease.overdue.retain(|task| of_use.contains(&task.task_no));
        lease.is_part |= lease.overdue.len() < all;
    }
    leases.retain(|lease| !lease.is_stale());
    leases
}
