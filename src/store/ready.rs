//! Tasks that nothing blocks any more go into `run`, or into `scheduled` while their time lies ahead.

use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::{Record, Statement};
use crate::store::notify::notify_ready;
use crate::wake;

/// A task that nothing blocks, and what it brings along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub(crate) task_no: i64,
    pub(crate) tries: i32,
    pub(crate) failures: i32,
    pub(crate) dependencies: i32,
    /// Not owned before this time, whatever the task itself says.
    pub(crate) not_before: Option<Time>,
}

/// From four columns: task_no, tries, failures, dependencies.
impl Record for Freed {
    type Columns = (i64, i32, i32, i32);

    fn of((task_no, tries, failures, dependencies): Self::Columns) -> Self {
        Freed { task_no, tries, failures, dependencies, not_before: None }
    }
}

/// The columns of several [`Freed`], for `unnest`.
struct Columns {
    task_nos: Vec<i64>,
    tries: Vec<i32>,
    failures: Vec<i32>,
    dependencies: Vec<i32>,
}

fn columns(freed: &[Freed]) -> Columns {
    Columns {
        task_nos: freed.iter().map(|f| f.task_no).collect(),
        tries: freed.iter().map(|f| f.tries).collect(),
        failures: freed.iter().map(|f| f.failures).collect(),
        dependencies: freed.iter().map(|f| f.dependencies).collect(),
    }
}

/// New rows at the end of their priority; the position is taken after the transaction has its id. Whether a task belongs
/// into a lane is asked only if it has a group; a claim asks again.
static TO_RUN: Statement<(&[i64], &[i32], &[i32], &[i32]), i32> = Statement::new(
    c"INSERT INTO taskq.run (task_no, position, nonce, prev_nonce, deadline, action_no, priority, tries, failures,
                             dependencies, grantable, limited, gated, keyed, max_duration, lane, key_hash)
      SELECT u.task_no, pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass), 0, 0, 'infinity',
             t.action_no, t.priority, u.tries, u.failures, u.dependencies, true, false,
             t.gated, false, t.max_duration, t.lane, t.key_hash
        FROM unnest($1, $2, $3, $4) AS u(task_no, tries, failures, dependencies)
       CROSS JOIN LATERAL (SELECT t.action_no, t.priority, t.max_duration,
                                  t.group_id IS NOT NULL OR t.workgroup IS NOT NULL OR t.merge_key IS NOT NULL
                                      AS gated,
                                  CASE WHEN t.group_id IS NULL THEN 0
                                       WHEN EXISTS (SELECT FROM taskq.action a
                                                      JOIN taskq.action_setting s ON s.name = a.name
                                                     WHERE a.action_no = t.action_no
                                                       AND (s.fair OR s.max_per_group IS NOT NULL) OFFSET 0)
                                         OR EXISTS (SELECT FROM taskq.task_group g
                                                     WHERE g.group_id = t.group_id
                                                       AND g.max_concurrency IS NOT NULL OFFSET 0)
                                       THEN taskq._lane(t.group_id) ELSE 0 END AS lane,
                                  CASE WHEN t.merge_key IS NOT NULL
                                       THEN taskq._key_hash(t.group_id, t.merge_key) END AS key_hash
                             FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t
      RETURNING action_no",
);

/// Makes the tasks ready, in the order given, whatever their `not_before` says.
pub(crate) fn make_ready(freed: &[Freed]) {
    if freed.is_empty() {
        return;
    }
    assign_transaction_id();
    let c = columns(freed);
    let actions: Vec<i32> = TO_RUN.query((c.task_nos, c.tries, c.failures, c.dependencies));
    announce(&actions);
}

/// Has waiters for tasks of these actions woken at commit, one for each, and listeners notified.
pub(crate) fn announce(action_nos: &[i32]) {
    for action_no in action_nos {
        wake::ready(*action_no);
    }
    if !action_nos.is_empty() {
        notify_ready(&action_nos.iter().copied().collect());
    }
}

static TO_SCHEDULED: Statement<(&[i64], &[Time], &[i32], &[i32], &[i32], bool), (i32, Time)> = Statement::new(
    c"INSERT INTO taskq.scheduled (task_no, due, action_no, tries, failures, dependencies,
                                   held_back)
      SELECT u.task_no, u.due, t.action_no, u.tries, u.failures, u.dependencies, $6
        FROM unnest($1, $2, $3, $4, $5) AS u(task_no, due, tries, failures, dependencies)
       CROSS JOIN LATERAL (SELECT t.action_no FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t
      RETURNING action_no, due",
);

/// Sets the tasks aside until they are due.
pub(crate) fn schedule(freed: &[(Freed, Time)]) {
    set_aside(freed, false);
}

/// The same of tasks whose workgroup is held back: a shorter delay brings them forward.
pub(crate) fn hold_back(freed: &[(Freed, Time)]) {
    set_aside(freed, true);
}

fn set_aside(freed: &[(Freed, Time)], held_back: bool) {
    if freed.is_empty() {
        return;
    }
    let c = columns(&freed.iter().map(|(f, _)| *f).collect::<Vec<_>>());
    let due: Vec<Time> = freed.iter().map(|(_, due)| *due).collect();
    let added: Vec<(i32, Time)> = TO_SCHEDULED
        .map((c.task_nos, due, c.tries, c.failures, c.dependencies, held_back), |(action_no, due)| {
            (action_no, due)
        });
    if let Some(first) = freed.iter().map(|(_, due)| *due).min() {
        wake::due(first);
    }
    for (action_no, due) in added {
        // One waiter for this action has to learn of the new due time.
        wake::ready_later(action_no, due);
    }
}

static TIMES: Statement<(&[i64], Time), (i64, Time)> = Statement::new(
    c"SELECT t.task_no, t.not_before FROM taskq.task t
       WHERE t.task_no = ANY ($1) AND t.not_before > $2",
);

/// Makes the tasks ready, or sets them aside where their `not_before` lies ahead.
pub(crate) fn release(freed: Vec<Freed>, now: Time) {
    if freed.is_empty() {
        return;
    }
    let task_nos: Vec<i64> = freed.iter().map(|f| f.task_no).collect();
    let mut later: std::collections::HashMap<i64, Time> = TIMES.query((task_nos, now)).into_iter().collect();
    for f in &freed {
        if let Some(time) = f.not_before.filter(|time| *time > now) {
            let due = later.entry(f.task_no).or_insert(time);
            *due = time.max(*due);
        }
    }
    let (scheduled, ready): (Vec<Freed>, Vec<Freed>) =
        freed.into_iter().partition(|f| later.contains_key(&f.task_no));
    make_ready(&ready);
    schedule(&scheduled.into_iter().map(|f| (f, later[&f.task_no])).collect::<Vec<_>>());
}
