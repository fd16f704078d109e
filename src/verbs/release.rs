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
        let found: Vec<TaskNo> = FOUND.query((task_ids, actors.clone(), actions));
        release(&found, actors, cut_status(status))
    })
}

/// Those in progress with one of these ids, actors and actions each, where such are given. Without ids it walks all that is ready or in
/// progress: an index on actors would make every grant write to it.
static FOUND: Statement<(&[&str], &[&str], &[&str]), TaskNo> = Statement::planned_each_time(
    c"SELECT r.task_no FROM taskq.run r
       WHERE r.nonce <> 0
         AND ($1 IS NULL OR r.task_no = ANY (ARRAY(SELECT t.task_no FROM taskq.task t WHERE t.id = ANY ($1))))
         AND ($2 IS NULL OR r.actor_id = ANY ($2))
         AND ($3 IS NULL OR r.action_no = ANY (ARRAY(SELECT a.action_no FROM taskq.action a WHERE a.name = ANY ($3))))",
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
