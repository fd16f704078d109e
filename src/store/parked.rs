//! Tasks that only a reason without a time keeps from being ready: they wait in `parked`, under the reason.

use std::cmp::Reverse;

use crate::number::{Position, TaskNo};
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::Statement;
use crate::store::freed::Freed;
use crate::store::reason::Reason;

/// A reason as `parked` stores it.
fn stored(reason: &Reason) -> Stored<'_> {
    let nothing = Stored { kind: 0, name: None, key: None, action: None, leader: None };
    match reason {
        Reason::Group(group) => Stored { kind: b'g' as i8, name: Some(group), ..nothing },
        Reason::Key(key) => Stored {
            kind: b'k' as i8,
            name: Some(&key.group),
            key: Some(&key.key),
            action: Some(&key.action),
            ..nothing
        },
        Reason::Rides(leader) => Stored { kind: b'm' as i8, leader: Some(*leader), ..nothing },
    }
}

/// The columns of a reason.
struct Stored<'a> {
    kind: i8,
    name: Option<&'a str>,
    key: Option<&'a str>,
    action: Option<&'a str>,
    leader: Option<TaskNo>,
}

/// A task on its way into `parked`.
pub(crate) struct Parked {
    /// The task, and what it brings along when the reason ends.
    pub(crate) freed: Freed,
    /// Where it stood, for its order among others under the same reason.
    pub(crate) position: Position,
    /// Why it may not run.
    pub(crate) reason: Reason,
}

/// Number, kind, name, key, action, leader, position, tries, failures, dependencies.
#[rustfmt::skip]
type Columns = (
    &'static [TaskNo], &'static [i8], &'static [&'static str], &'static [&'static str], &'static [&'static str],
    &'static [TaskNo], &'static [Position], &'static [i32], &'static [i32], &'static [i32],
);
static PARK: Statement<Columns> = Statement::new(
    c"INSERT INTO taskq.parked (task_no, kind, name, key, action, leader_no, priority, position, tries, failures,
                                dependencies, action_no)
      SELECT u.task_no, u.kind, u.name, u.key, u.action, u.leader_no, t.priority, u.position, u.tries, u.failures,
             u.dependencies, t.action_no
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             AS u(task_no, kind, name, key, action, leader_no, position, tries, failures, dependencies)
       CROSS JOIN LATERAL (SELECT t.priority, t.action_no FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t",
);

/// Parks tasks; the caller has removed their live rows.
pub(crate) fn park(parked: &[Parked]) {
    if parked.is_empty() {
        return;
    }
    let reasons: Vec<Stored> = parked.iter().map(|p| stored(&p.reason)).collect();
    PARK.execute((
        parked.iter().map(|p| p.freed.task_no).collect::<Vec<_>>(),
        reasons.iter().map(|r| r.kind).collect::<Vec<_>>(),
        reasons.iter().map(|r| r.name).collect::<Vec<_>>(),
        reasons.iter().map(|r| r.key).collect::<Vec<_>>(),
        reasons.iter().map(|r| r.action).collect::<Vec<_>>(),
        reasons.iter().map(|r| r.leader).collect::<Vec<_>>(),
        parked.iter().map(|p| p.position).collect::<Vec<_>>(),
        parked.iter().map(|p| p.freed.tries).collect::<Vec<_>>(),
        parked.iter().map(|p| p.freed.failures).collect::<Vec<_>>(),
        parked.iter().map(|p| p.freed.dependencies).collect::<Vec<_>>(),
    ));
}

/// Walks `parked_reason_idx`.
static UNPARK_NAMED: Statement<(i8, &str, &str, &str), (i32, Position, Freed)> = Statement::new(
    c"DELETE FROM taskq.parked p
       WHERE p.kind = $1 AND p.kind <> 'm' AND p.name = $2 AND p.key IS NOT DISTINCT FROM $3
         AND p.action IS NOT DISTINCT FROM $4
      RETURNING p.priority, p.position, p.task_no, p.tries, p.failures, p.dependencies",
);
static UNPARK_RIDERS: Statement<TaskNo, (i32, Position, Freed)> = Statement::new(
    c"DELETE FROM taskq.parked p WHERE p.kind = 'm' AND p.leader_no = $1
      RETURNING p.priority, p.position, p.task_no, p.tries, p.failures, p.dependencies",
);

/// Takes out what is parked under a reason, in the order in which it stood. The caller has locked it, and sees to it that
/// nothing comes to it meanwhile.
pub(crate) fn release(reason: &Reason) -> Vec<Freed> {
    assign_transaction_id();
    let mut rows = match stored(reason) {
        Stored { kind, name: Some(name), key, action, .. } => UNPARK_NAMED.query((kind, name, key, action)),
        Stored { leader, .. } => UNPARK_RIDERS.query(leader),
    };
    rows.sort_by_key(|(priority, position, _)| (Reverse(*priority), *position));
    rows.into_iter().map(|(_, _, freed)| freed).collect()
}

/// Adds to what these tasks have of dependencies, and of such as have aborted; both may be negative.
pub(crate) static RECOUNT: Statement<(&[TaskNo], i32, i32)> = Statement::new(
    c"UPDATE taskq.parked p SET dependencies = p.dependencies + $2, failures = p.failures + $3
       WHERE p.task_no = ANY ($1)",
);

/// These tasks stand at the end of their priority from now on, for the order in which they come back.
pub(crate) static STAND_BEHIND: Statement<&[TaskNo]> = Statement::new(
    c"UPDATE taskq.parked p SET priority = u.priority, position = u.position
        FROM (SELECT u.task_no, t.priority,
                     pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass) AS position
                FROM pg_catalog.unnest($1) AS u(task_no)
               CROSS JOIN LATERAL (SELECT t.priority FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t
              OFFSET 0) AS u
       WHERE p.task_no = u.task_no",
);

/// Removes the rows of these tasks.
pub(crate) static REMOVE: Statement<&[TaskNo]> =
    Statement::new(c"DELETE FROM taskq.parked p WHERE p.task_no = ANY ($1)");
