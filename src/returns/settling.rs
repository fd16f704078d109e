//! Returns that settle their tasks and bring nothing else along.

use std::collections::HashMap;

use pgrx::pg_sys::{CHAROID, INT8ARRAYOID, JSONBOID, TEXTOID, TIMESTAMPTZOID};

use super::{Codes, Entry, Return, take};
use crate::flow::slots;
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, args, sql};
use crate::settle::{Ending, expiry, notify, propagate, riders, settle, store_all};
use crate::state::{Cause, Outcome};
use crate::store::before_commit;
use crate::store::lease::leases_let_go;
use crate::store::live::Place;
use crate::store::tally;
use crate::token::{Token, in_pieces};
use crate::upkeep::retention;
use crate::wake;

/// Removes the rows and stores how the tasks ended, and lets go of the leases they keep, in one statement. Rows are locked in the order of
/// task numbers (the index returns them so), and waited for if somebody extends or holds one.
static ALIKE: Statement = Statement::new(
    sql!("WITH kept AS MATERIALIZED (
        SELECT a.action_no,
               CASE $5 WHEN 'a' THEN COALESCE(s.retention_aborted, s.retention) ELSE s.retention END AS retention
          FROM taskq.action_setting s JOIN taskq.action a ON a.name = s.name
         WHERE s.retention IS NOT NULL OR s.retention_aborted IS NOT NULL),
      gone AS (
        DELETE FROM taskq.run r WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2)
        RETURNING r.task_no, r.nonce, r.granted_at, r.tries, r.failures, r.dependencies, r.actor_id,
                  r.limited, r.keyed, r.gated, r.deadline),
      done AS (
        INSERT INTO taskq.settled (task_no, expires_at, settled_at, granted_at, tries, failures,
                                   dependencies, signals, action_no, grouped, code, cause, actor_id, status, result)
        SELECT g.task_no, GREATEST(COALESCE($3 OPERATOR(pg_catalog.+) COALESCE(
                   CASE $5 WHEN 'a' THEN t.retention_aborted ELSE t.retention END,
                   (SELECT k.retention FROM kept AS k WHERE k.action_no = t.action_no)), $4), t.unique_until),
               $3, g.granted_at, g.tries,
               g.failures, g.dependencies, g.dependencies, t.action_no, t.group_id IS NOT NULL, $5, 'w', g.actor_id, $6, $7
          FROM gone AS g
         CROSS JOIN LATERAL (SELECT t.retention, t.retention_aborted, t.unique_until, t.action_no, t.group_id FROM taskq.task t
                              WHERE t.task_no = g.task_no OFFSET 0) AS t),
      forgotten AS (
        DELETE FROM taskq.progress p
         WHERE $5 = 'c' AND p.task_no = ANY (ARRAY(SELECT g.task_no FROM gone AS g))),
      ", leases_let_go!("gone AS f"), "
      SELECT g.task_no, g.nonce, g.limited, g.keyed, g.gated,
             CASE WHEN g.task_no = ANY (ARRAY(SELECT m.task_no FROM met AS m WHERE NOT m.alone)) THEN g.deadline END
        FROM gone AS g"),
    &[INT8ARRAYOID, INT8ARRAYOID, TIMESTAMPTZOID, TIMESTAMPTZOID, CHAROID, TEXTOID, JSONBOID],
);

/// What is needed of a removed row.
struct Gone {
    nonce: i64,
    limited: bool,
    keyed: bool,
    /// It may have a group.
    gated: bool,
    /// The deadline of a lease that it keeps for others, too.
    keeps: Option<Time>,
}

/// Settles tasks that all end in the same way.
pub(super) fn alike(settling: &[(usize, Token)], returns: &[Entry], now: Time, codes: &mut Codes) {
    let Some((first, _)) = settling.first() else { return };
    let Return::Settle { outcome, status, result, .. } = &returns[*first].2 else { return };
    let mut gone: HashMap<i64, Gone> = HashMap::with_capacity(settling.len());
    for (task_nos, nonces) in in_pieces(settling.iter().map(|(_, token)| token.pair())) {
        let columns = args![
            task_nos,
            nonces,
            now,
            expiry(now, *outcome),
            outcome.stored(),
            status.clone(),
            result.clone()
        ];
        gone.extend(ALIKE.query(columns, |row| {
            let (nonce, limited) = (row.need(2), row.need(3));
            let (keyed, gated, keeps) = (row.need(4), row.need(5), row.get(6));
            (row.need(1), Gone { nonce, limited, keyed, gated, keeps })
        }));
    }
    let mut ended = Vec::with_capacity(gone.len());
    for (i, token) in settling {
        if gone.get(&token.task_no).is_some_and(|g| g.nonce == token.nonce) {
            codes.insert(*i, outcome.name());
            ended.push(token.task_no);
            wake::settled(token.task_no);
        }
    }
    if ended.is_empty() {
        return;
    }
    for (task_no, deadline) in gone.iter().filter_map(|(n, g)| Some((*n, g.keeps?))) {
        before_commit::hand_on(deadline, task_no);
    }
    let seated = gone.iter().filter(|(_, g)| g.limited).map(|(task_no, _)| *task_no);
    slots::release(&seated.collect::<Vec<_>>());
    retention::settled(ended.len());
    notify(&ended, *outcome);
    let gated = gone.iter().filter(|(_, g)| g.gated).map(|(task_no, _)| (*task_no, *outcome));
    tally::settled(&gated.collect::<Vec<_>>(), now);
    let mut news: Vec<(i64, Outcome)> = ended.into_iter().map(|task_no| (task_no, *outcome)).collect();
    let holders: Vec<Ending> = gone
        .iter()
        .filter(|(_, g)| g.keyed)
        .map(|(task_no, _)| Ending {
            task_no: *task_no,
            outcome: *outcome,
            cause: Cause::Worker,
            status: status.clone(),
            result: result.clone(),
            granted_at: None,
            actor_id: None,
            tries: 0,
            failures: 0,
            dependencies: 0,
            signals: 0,
            keyed: true,
            leader: None,
        })
        .collect();
    if !holders.is_empty() {
        news.extend(store_all(&riders::settled(&holders), now));
    }
    propagate(news, now);
}

/// Settles tasks, each in its own way.
pub(super) fn each(settling: &[(usize, Token)], returns: &[Entry], now: Time, codes: &mut Codes) {
    let gone = take(settling);
    let mut endings = Vec::with_capacity(gone.len());
    for (i, token) in settling {
        let Return::Settle { outcome, status, result, .. } = &returns[*i].2 else { continue };
        if let Some(live) = gone.get(&token.task_no).filter(|l| l.place == Place::Run { nonce: token.nonce })
        {
            codes.insert(*i, outcome.name());
            endings.push(Ending {
                outcome: *outcome,
                result: result.clone(),
                ..Ending::abort(live, Cause::Worker, status.clone())
            });
        }
    }
    settle(endings, now);
}
