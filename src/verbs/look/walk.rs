//! Walking the stored graph, level by level: `ancestors` and `descendants`.

use std::collections::HashMap;

use pgrx::prelude::*;

use crate::error::{Refusal, Result, or_throw, required};
use crate::number::TaskNo;
use crate::pg::rows::Rows;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Statement, record};
use crate::store::numbers;

/// Which way to walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the tasks waited for.
    Up,
    /// To the tasks that wait.
    Down,
}

record! {
    /// An edge between two stored tasks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Link {
        /// The task that is waited for.
        pub(super) after: TaskNo,
        /// The task that waits.
        pub(super) run: TaskNo,
        /// As `dependency.condition` stores it: `c`, `s` or `a`.
        pub(super) condition: i8,
    }
}

static UP: Statement<&[TaskNo], Link> = Statement::new(
    c"SELECT d.after_no, d.run_no, d.condition FROM taskq.dependency d WHERE d.run_no = ANY ($1) AND d.state <> 'd'
       ORDER BY d.run_no, d.after_no",
);
static DOWN: Statement<&[TaskNo], Link> = Statement::new(
    c"SELECT d.after_no, d.run_no, d.condition FROM taskq.dependency d WHERE d.after_no = ANY ($1) AND d.state <> 'd'
       ORDER BY d.after_no, d.run_no",
);

/// The links that lead from these tasks in one direction, except those without which a task has gone on.
pub(super) fn links(from: &[TaskNo], way: Way) -> Vec<Link> {
    let statement = if way == Way::Up { &UP } else { &DOWN };
    statement.query(from)
}

/// Everything reachable from a task with its distance, up to `most` tasks.
pub(super) fn reach(from: TaskNo, way: Way, most: usize) -> Vec<(TaskNo, i32)> {
    let mut depth: HashMap<TaskNo, i32> = HashMap::from([(from, 0)]);
    let mut found = Vec::new();
    let mut frontier = vec![from];
    let mut level = 0;
    while !frontier.is_empty() && found.len() < most {
        check_for_interrupts();
        level += 1;
        let links = links(&frontier, way);
        frontier = Vec::new();
        for link in &links {
            let next = if way == Way::Up { link.after } else { link.run };
            if let std::collections::hash_map::Entry::Vacant(entry) = depth.entry(next) {
                entry.insert(level);
                found.push((next, level));
                frontier.push(next);
            }
        }
    }
    found.truncate(most);
    found
}

/// A task as it is shown.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The id of the task.
    pub(super) id: String,
    /// The name of its action.
    pub(super) action: String,
    /// Its state, as the view `taskq.tasks` has it.
    pub(super) state: String,
    /// What the state does not tell: "skipped" of one that has aborted and was not needed; "suspended" and "signal" of such as are
    /// blocked.
    pub(super) kind: Option<String>,
}

// The states are those of the view taskq.tasks: what flow control has parked waits for no task.
static NODES: Statement<&[TaskNo], (TaskNo, String, String, String, Option<String>)> = Statement::new(
    c"SELECT u.task_no, t.id, a.name,
             CASE WHEN s.code = 'c' THEN 'completed' WHEN s.code = 'a' THEN 'aborted'
                  WHEN r.nonce <> 0 THEN 'in-progress' WHEN b.task_no IS NOT NULL THEN 'blocked'
                  WHEN d.due > taskq.clock() OR w.not_before IS NOT NULL THEN 'scheduled'
                  ELSE 'ready' END,
             CASE WHEN s.cause = 'k' THEN 'skipped' WHEN b.since IS NOT NULL THEN 'suspended'
                  WHEN b.spare < 0 THEN 'signal' END
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT t.id, t.action_no, t.workgroup FROM taskq.task t
                            WHERE t.task_no = u.task_no OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action a WHERE a.action_no = t.action_no OFFSET 0) AS a
        LEFT JOIN LATERAL (SELECT s.* FROM taskq.settled s WHERE s.task_no = u.task_no OFFSET 0) AS s ON true
        LEFT JOIN LATERAL (SELECT r.* FROM taskq.run r WHERE r.task_no = u.task_no OFFSET 0) AS r ON true
        LEFT JOIN LATERAL (SELECT b.task_no, b.since, b.spare FROM taskq.blocked b WHERE b.task_no = u.task_no OFFSET 0) AS b ON true
        LEFT JOIN LATERAL (SELECT d.due FROM taskq.scheduled d WHERE d.task_no = u.task_no OFFSET 0) AS d ON true
        LEFT JOIN LATERAL (SELECT pg_catalog.max(w.not_before) AS not_before FROM taskq.workgroup w
                            WHERE w.name = t.workgroup AND w.not_before > taskq.clock()) AS w ON true",
);

/// What is to be shown of tasks.
pub(super) fn nodes(task_nos: &[TaskNo]) -> HashMap<TaskNo, Node> {
    NODES
        .map(task_nos, |(task_no, id, action, state, kind)| (task_no, Node { id, action, state, kind }))
        .into_iter()
        .collect()
}

impl Node {
    /// The state as a picture tells it.
    pub(super) fn shown(&self) -> &str {
        self.kind.as_deref().unwrap_or(&self.state)
    }
}

/// The number of a task that must exist.
fn number(task_id: Option<&str>) -> Result<TaskNo> {
    let id = required("task_id", task_id)?;
    numbers::by_id(&[id]).get(id).copied().ok_or_else(|| Refusal::no_such_task(id))
}

type Relatives = Rows<(String, String, String, i32)>;

/// `taskq.ancestors(task_id, max_tasks) -> TABLE (task_id, action, state, depth)`
#[pg_extern(sql = "")]
fn taskq_ancestors(task_id: Option<&str>, max_tasks: Option<i32>) -> Relatives {
    or_throw(relatives(task_id, max_tasks, Way::Up))
}

/// `taskq.descendants(task_id, max_tasks) -> TABLE (task_id, action, state, depth)`
#[pg_extern(sql = "")]
fn taskq_descendants(task_id: Option<&str>, max_tasks: Option<i32>) -> Relatives {
    or_throw(relatives(task_id, max_tasks, Way::Down))
}

fn relatives(task_id: Option<&str>, max_tasks: Option<i32>, way: Way) -> Result<Relatives> {
    let most = most(max_tasks)?;
    let found = reach(number(task_id)?, way, most);
    let nodes = nodes(&found.iter().map(|(n, _)| *n).collect::<Vec<_>>());
    let row = |(n, depth)| {
        let node = nodes.get(&n)?.clone();
        Some((node.id, node.action, node.state, depth))
    };
    Ok(Rows(found.into_iter().filter_map(row).collect()))
}

/// A bound on the number of tasks; NULL for none.
pub(super) fn most(max_tasks: Option<i32>) -> Result<usize> {
    most_of("max_tasks", max_tasks)
}

/// A number of tasks from 0 up; NULL for no bound.
pub(super) fn most_of(argument: &str, value: Option<i32>) -> Result<usize> {
    match value {
        None => Ok(usize::MAX),
        Some(n) => usize::try_from(n)
            .map_err(|_| Refusal::out_of_range(argument, &n.to_string(), "Give a number from 0 up.")),
    }
}
