//! Which tries a call ends that is about to sleep, or whose transaction may stay open: those of which something may come for
//! it; the second also all of its own actions, since it keeps what it does.
//!
//! What comes to nothing it could not show to anybody before it ends: it would undo it, begin anew with its next look, and be in
//! the way of others who do the same. So a try is left to others whose end makes no task of the call's actions ready (its own, for another
//! try), lets no task go that depends on it or on what rides on it, frees no place of a limit and no merge key that may be what the
//! call waits for, and is not what keeps a schedule of the call's actions from its next run. Asked before anything is locked: an
//! attempt costs the call a transaction id, with which it sleeps if nothing comes of it.

use std::collections::{HashMap, HashSet};

use super::Caller;
use super::leases::Elapsed;
use crate::flow::actions::try_limits;
use crate::number::TaskNo;
use crate::pg::clock::Time;
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
    }
}

static CONCERNS: Statement<&[TaskNo], Concerns> = Statement::new(
    c"SELECT r.task_no, r.tries, r.limited,
             r.limited AND EXISTS (SELECT FROM taskq.task_group g
                                    WHERE g.group_id = t.group_id AND g.max_concurrency IS NOT NULL OFFSET 0),
             r.keyed
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT r.task_no, r.tries, r.limited, r.keyed FROM taskq.run r
                            WHERE r.task_no = u.task_no OFFSET 0) AS r
       CROSS JOIN LATERAL (SELECT t.group_id FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t",
);

/// Of tasks that end with their tries: those on which others depend, or on whose riders; whether some of these are of the
/// actions (the first hundred that wait are asked). The others may be what stands before such tasks.
static AWAITED: Statement<(&[TaskNo], &[i32]), (TaskNo, bool)> = Statement::new(
    c"SELECT u.task_no, w.by_own
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (
             SELECT pg_catalog.bool_or(b.action_no = ANY ($2)) AS by_own
               FROM (SELECT u.task_no
                      UNION ALL
                     SELECT p.task_no FROM taskq.parked p WHERE p.kind = 'm' AND p.leader_no = u.task_no
                      UNION ALL
                     SELECT r.task_no FROM taskq.run r WHERE r.aside = -u.task_no) AS e
              CROSS JOIN LATERAL (
                    SELECT b.action_no
                      FROM taskq.dependency d
                     CROSS JOIN LATERAL (SELECT b.action_no FROM taskq.blocked b WHERE b.task_no = d.run_no OFFSET 0) AS b
                     WHERE d.after_no = e.task_no LIMIT 100) AS b) AS w
       WHERE w.by_own IS NOT NULL",
);

/// Of these, the last runs of schedules of the named actions that are due, and let a run wait for the one before.
static KEEPS_FROM_RUNNING: Statement<(&[TaskNo], &[&str], Time), TaskNo> = Statement::new(
    c"SELECT t.task_no
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT t.task_no, t.id FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT s.last_task_id, s.next_at, s.task, s.former FROM taskq.schedule s
                            WHERE s.name = pg_catalog.regexp_replace(t.id, '@[^@]*$', '') OFFSET 0) AS s
       WHERE s.last_task_id = t.id AND s.next_at <= $3
         AND COALESCE(s.former #>> '{0,task,action}', s.task ->> 'action') = ANY ($2)",
);

/// What is of use to a call.
#[derive(Default)]
pub(super) struct Useful {
    /// With those of their tasks whose ends may be of use.
    pub(super) leases: Vec<Elapsed>,
    /// Those of other actions whose ends surely concern a task of the call's actions.
    pub(super) near: HashSet<TaskNo>,
}

/// The leases with those of their tasks whose ends may be of use to the call.
pub(super) fn only(mut leases: Vec<Elapsed>, caller: &Caller, now: Time) -> Useful {
    let overdue: Vec<TaskNo> =
        leases.iter().flat_map(|lease| &lease.overdue).map(|task| task.task_no).collect();
    if overdue.is_empty() {
        return Useful { leases, near: HashSet::new() };
    }
    let own: HashSet<TaskNo> = leases
        .iter()
        .flat_map(|lease| &lease.overdue)
        .filter(|task| task.is_of(caller.action_nos))
        .map(|task| task.task_no)
        .collect();
    let limits = try_limits(&overdue);
    let concerns: Vec<Concerns> = CONCERNS.query(overdue);
    let limit = |task: &Concerns| limits.get(&task.task_no).copied().unwrap_or_default();
    // How many deadlines it has missed is not asked.
    let ends = |task: &&Concerns| {
        limit(task).max_timeouts.is_some() || limit(task).max_tries.is_some_and(|max| task.tries >= max)
    };
    let ending: Vec<TaskNo> = concerns.iter().filter(ends).map(|task| task.task_no).collect();
    let (mut awaited, mut keeping) = (HashMap::new(), HashSet::new());
    if !ending.is_empty() {
        awaited.extend(AWAITED.query((ending.as_slice(), caller.action_nos)));
        let names: Vec<&str> = caller.names.iter().map(String::as_str).collect();
        keeping.extend(KEEPS_FROM_RUNNING.query((ending.as_slice(), names, now)));
    }
    let of_use = |task: &Concerns| {
        let own = own.contains(&task.task_no);
        let goes_on = limit(task).max_timeouts.is_some() || !ends(&task);
        // What a transaction that stays open ends is kept from its own workers until then.
        let awaited = match caller.stays_open {
            true => awaited.get(&task.task_no) == Some(&true),
            false => awaited.contains_key(&task.task_no),
        };
        task.of_group
            || awaited
            || keeping.contains(&task.task_no)
            || own && (caller.stays_open || goes_on || task.limited || task.keyed)
    };
    let of_use: HashSet<TaskNo> =
        concerns.iter().filter(|task| of_use(task)).map(|task| task.task_no).collect();
    for lease in &mut leases {
        let all = lease.overdue.len();
        lease.overdue.retain(|task| of_use.contains(&task.task_no));
        lease.is_part |= lease.overdue.len() < all;
    }
    leases.retain(|lease| !lease.is_stale());
    keeping.extend(awaited.into_iter().filter(|(_, by_own)| *by_own).map(|(task_no, _)| task_no));
    Useful { leases, near: keeping }
}
