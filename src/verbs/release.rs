//! `release_tasks`: tasks in progress are taken from actors that are known to be dead.

use std::collections::HashSet;

use pgrx::prelude::*;

use crate::clock;
use crate::error::{Refusal, Result};
use crate::input::cut_status;
use crate::locks::{self, LockStrength, restartable};
use crate::number::TaskNo;
use crate::pg::statement::Statement;
use crate::returns::revoke;
use crate::rights::{self, Doing};
use crate::store::live::Live;

/// `taskq.release_tasks(task_ids, actors, actions, status) -> bigint`
#[pg_extern(sql = "")]
fn taskq_release_tasks(
    task_ids: Option<Vec<Option<String>>>,
    actors: Option<Vec<Option<String>>>,
    actions: Option<Vec<Option<String>>>,
    status: Option<String>,
) -> i64 {
    rights::for_caller(|| {
        // An operator's call, which no part that is narrowed has.
        rights::check_whole_queue(Doing::Change)?;
        if task_ids.is_none() && actors.is_none() && actions.is_none() {
            return Err(Refusal::nothing_to_release());
        }
        let found: Vec<TaskNo> = match (task_ids, actions) {
            (Some(ids), actions) => NAMED.query((ids, actors.clone(), actions)),
            (None, Some(actions)) => OF_ACTIONS.query((actors.clone(), actions)),
            (None, None) => OF_ACTORS.query(actors.clone()),
        };
        release(&found, actors, cut_status(status))
    })
}

/// Those in progress of the tasks with these ids, and with these actors and actions if any are given.
static NAMED: Statement<(&[&str], &[&str], &[&str]), TaskNo> = Statement::new(
    c"SELECT r.task_no
        FROM (SELECT DISTINCT u.id FROM pg_catalog.unnest($1) AS u(id)) AS u
       CROSS JOIN LATERAL (SELECT t.task_no FROM taskq.task t WHERE t.id = u.id OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT r.task_no, r.nonce, r.actor_id, r.action_no FROM taskq.run r
                            WHERE r.task_no = t.task_no OFFSET 0) AS r
       WHERE r.nonce <> 0 AND ($2 IS NULL OR r.actor_id = ANY ($2))
         AND ($3 IS NULL OR (SELECT a.name = ANY ($3) FROM taskq.action a WHERE a.action_no = r.action_no))",
);

/// Those in progress of these actions, and with these actors if any are given: walks what is ready or in progress of the actions.
static OF_ACTIONS: Statement<(&[&str], &[&str]), TaskNo> = Statement::new(
    c"SELECT r.task_no
        FROM taskq.action a
       CROSS JOIN LATERAL (SELECT r.task_no, r.nonce, r.actor_id FROM taskq.run r
                            WHERE r.action_no = a.action_no AND r.lane = 0
                           UNION ALL
                           SELECT r.task_no, r.nonce, r.actor_id FROM taskq.run r
                            WHERE r.action_no = a.action_no AND r.lane <> 0) AS r
       WHERE a.name = ANY ($2) AND r.nonce <> 0 AND ($1 IS NULL OR r.actor_id = ANY ($1))",
);

/// Those in progress with these actors: walks all that is ready or in progress. An index would make every grant write to it.
static OF_ACTORS: Statement<&[&str], TaskNo> = Statement::planned_each_time(
    c"SELECT r.task_no FROM taskq.run r WHERE r.nonce <> 0 AND r.actor_id = ANY ($1)",
);

/// Ends the tries of those that are still in progress, and owned by these actors if any are given, once they are locked in the global
/// order; waits for transactions that hold one.
fn release(found: &[TaskNo], actors: Option<Vec<Option<String>>>, status: Option<String>) -> Result<i64> {
    let actors: Option<HashSet<String>> = actors.map(|actors| actors.into_iter().flatten().collect());
    let is_theirs = |live: &Live| match (&actors, &live.actor_id) {
        (Some(actors), Some(actor)) => actors.contains(actor),
        (Some(_), None) => false,
        (None, _) => true,
    };
    restartable(|| {
        let rows = locks::lock(found, LockStrength::Update);
        let mut held: Vec<Live> =
            rows.into_values().filter(|live| live.in_progress() && is_theirs(live)).collect();
        held.sort_unstable_by_key(|live| live.task_no);
        revoke(&held, status.clone(), clock::now());
        Ok(held.len() as i64)
    })
}
