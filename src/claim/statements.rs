//! The statements that grant. They are the only ones. Two walk `run_claim_idx`, which has what is in no lane; what is
//! in lanes is chosen first and then taken by number.
//!
//! A row that somebody else has changed since the statement's snapshot, and committed, would be locked in its newest
//! version first and found unsuitable then. The lock would stay, and with it a transaction id: a call that sleeps
//! afterwards would hold back what waits for its transaction to end. So each row is asked right before it is locked
//! whether it is untouched (`_is_untouched`): what somebody is changing would be skipped anyway. What is changed and
//! committed in the instant between the two is locked in vain, and is the business of whoever called.

use pgrx::pg_sys::{
    BOOLOID, INT4ARRAYOID, INT4OID, INT8ARRAYOID, INT8OID, INTERVALOID, ItemPointerData, Oid, TEXTOID,
    TIMESTAMPTZOID,
};
use pgrx::prelude::*;

use super::candidates::Candidate;
use super::marks::{self, Ranges};
use super::{Grant, Request};
use crate::pg::clock::Time;
use crate::pg::row_version::is_untouched;
use crate::pg::statement::{Row, Statement, args};

/// The stretches of one action's index range one after the other, in order; only what is taken is locked. Walks
/// `run_claim_idx`. $1 action, $2 limit, $3 base, $4 actor, $5 now, $6 max_duration; $7 and so on: the [`Ranges`].
///
/// The function scan yields the stretches in their order, the nested loop looks into the next only when those before
/// have too little, and no plan can turn the two round.
static CLAIM_ONE: Statement = Statement::new(
    c"WITH granted AS (
        UPDATE taskq.run r
           SET prev_nonce = r.nonce, nonce = $3 # r.task_no, grantable = false, tries = r.tries + 1, granted_at = $5, actor_id = $4,
               limited = false, keyed = false,
               deadline = COALESCE($5 OPERATOR(pg_catalog.+) COALESCE($6, r.max_duration, (
                   SELECT s.max_duration FROM taskq.action a JOIN taskq.action_setting s ON s.name = a.name
                    WHERE a.action_no = r.action_no)), 'infinity')
         WHERE r.ctid = ANY (ARRAY(
                 SELECT p.ctid
                   FROM unnest($7, $8, $9, $10) AS a(action_no, highest, lowest, start)
                  CROSS JOIN LATERAL (
                        SELECT c.ctid FROM taskq.run c
                         WHERE c.action_no = $1 AND c.lane = 0 AND c.grantable
                           AND c.priority <= a.highest AND c.priority >= a.lowest AND c.position >= a.start
                           AND taskq._is_untouched('taskq.run'::pg_catalog.regclass, c.ctid)
                         ORDER BY c.priority DESC, c.position
                         LIMIT $2
                           FOR NO KEY UPDATE SKIP LOCKED) AS p
                  LIMIT $2))
           AND r.grantable
        RETURNING r.task_no, r.nonce, r.tries, r.failures, r.deadline, r.priority, r.position,
                  r.dependencies, r.gated, r.prev_nonce, r.action_no, r.lane)
      SELECT g.task_no, g.nonce, g.tries, g.failures, g.deadline, g.priority, g.position,
             t.id, t.name, t.body, t.metadata,
             (SELECT p.checkpoint FROM taskq.progress p WHERE p.task_no = g.task_no),
             g.dependencies, g.gated, t.group_id, t.workgroup, t.merge_key, g.prev_nonce,
             g.action_no, g.lane
        FROM granted AS g
       CROSS JOIN LATERAL (
             SELECT t.id, a.name, t.body, t.metadata, t.group_id, t.workgroup, t.merge_key
               FROM taskq.task t, taskq.action a
              WHERE t.task_no = g.task_no AND a.action_no = t.action_no OFFSET 0) AS t",
    &[
        INT4OID,
        INT4OID,
        INT8OID,
        TEXTOID,
        TIMESTAMPTZOID,
        INTERVALOID,
        INT4ARRAYOID,
        INT4ARRAYOID,
        INT4ARRAYOID,
        INT8ARRAYOID,
    ],
);

/// Several index ranges: the first of each stretch are merged without locking them, then the best are locked.
/// What another call holds is passed over by looking deeper the next time round ($1). $2 limit, and so on as above.
static CLAIM_MANY: Statement = Statement::new(
    c"WITH granted AS (
        UPDATE taskq.run r
           SET prev_nonce = r.nonce, nonce = $3 # r.task_no, grantable = false, tries = r.tries + 1, granted_at = $5, actor_id = $4,
               limited = false, keyed = false,
               deadline = COALESCE($5 OPERATOR(pg_catalog.+) COALESCE($6, r.max_duration, (
                   SELECT s.max_duration FROM taskq.action a JOIN taskq.action_setting s ON s.name = a.name
                    WHERE a.action_no = r.action_no)), 'infinity')
         WHERE r.ctid = ANY (ARRAY(
                 SELECT l.ctid FROM taskq.run l
                  WHERE l.ctid = ANY (ARRAY(
                          SELECT p.ctid
                            FROM unnest($7, $8, $9, $10) AS a(action_no, highest, lowest, start)
                           CROSS JOIN LATERAL (
                                 SELECT c.ctid, c.priority, c.position FROM taskq.run c
                                  WHERE c.action_no = a.action_no AND c.lane = 0 AND c.grantable
                                    AND c.priority <= a.highest AND c.priority >= a.lowest AND c.position >= a.start
                                  ORDER BY c.priority DESC, c.position
                                  LIMIT $1) AS p
                           ORDER BY p.priority DESC, p.position
                           LIMIT $1))
                    AND l.grantable AND taskq._is_untouched('taskq.run'::pg_catalog.regclass, l.ctid)
                  ORDER BY l.priority DESC, l.position
                  LIMIT $2
                    FOR NO KEY UPDATE SKIP LOCKED))
           AND r.grantable
        RETURNING r.task_no, r.nonce, r.tries, r.failures, r.deadline, r.priority, r.position,
                  r.dependencies, r.gated, r.prev_nonce, r.action_no, r.lane)
      SELECT g.task_no, g.nonce, g.tries, g.failures, g.deadline, g.priority, g.position,
             t.id, t.name, t.body, t.metadata,
             (SELECT p.checkpoint FROM taskq.progress p WHERE p.task_no = g.task_no),
             g.dependencies, g.gated, t.group_id, t.workgroup, t.merge_key, g.prev_nonce,
             g.action_no, g.lane
        FROM granted AS g
       CROSS JOIN LATERAL (
             SELECT t.id, a.name, t.body, t.metadata, t.group_id, t.workgroup, t.merge_key
               FROM taskq.task t, taskq.action a
              WHERE t.task_no = g.task_no AND a.action_no = t.action_no OFFSET 0) AS t",
    &[
        INT4OID,
        INT4OID,
        INT8OID,
        TEXTOID,
        TIMESTAMPTZOID,
        INTERVALOID,
        INT4ARRAYOID,
        INT4ARRAYOID,
        INT4ARRAYOID,
        INT8ARRAYOID,
    ],
);

/// How many grantable entries of these actions there are, counted no further than $1.
static GRANTABLE: Statement = Statement::new(
    c"SELECT pg_catalog.count(*)::integer
        FROM (SELECT FROM unnest($2, $3, $4, $5) AS a(action_no, highest, lowest, start)
               CROSS JOIN LATERAL (
                     SELECT FROM taskq.run c
                      WHERE c.action_no = a.action_no AND c.lane = 0 AND c.grantable
                        AND c.priority <= a.highest AND c.priority >= a.lowest AND c.position >= a.start
                      LIMIT $1) AS c
               LIMIT $1) AS found",
    &[INT4OID, INT4ARRAYOID, INT4ARRAYOID, INT4ARRAYOID, INT8ARRAYOID],
);

/// The next entries of several actions, in order, without locks, leaving lanes out.
static PEEK: Statement = Statement::new(
    c"SELECT p.task_no, p.action_no, p.priority, p.position
        FROM unnest($2, $3, $4, $5) AS a(action_no, highest, lowest, start)
       CROSS JOIN LATERAL (
             SELECT c.task_no, c.action_no, c.priority, c.position FROM taskq.run c
              WHERE c.action_no = a.action_no AND c.lane = 0 AND c.grantable
                AND c.priority <= a.highest AND c.priority >= a.lowest AND c.position >= a.start
              ORDER BY c.priority DESC, c.position
              LIMIT $1) AS p
       ORDER BY p.priority DESC, p.position
       LIMIT $1",
    &[INT4OID, INT4ARRAYOID, INT4ARRAYOID, INT4ARRAYOID, INT8ARRAYOID],
);

/// These entries, by the primary key of `run`, where nobody else holds them.
/// $1 task numbers, $2 base, $3 actor, $4 now, $5 max_duration, $6 whether they take slots.
static CLAIM_THESE: Statement = Statement::new(
    c"WITH granted AS (
        UPDATE taskq.run r
           SET prev_nonce = r.nonce, nonce = $2 # r.task_no, grantable = false, tries = r.tries + 1, granted_at = $4, actor_id = $3,
               limited = $6, keyed = false,
               deadline = COALESCE($4 OPERATOR(pg_catalog.+) COALESCE($5, r.max_duration, (
                   SELECT s.max_duration FROM taskq.action a JOIN taskq.action_setting s ON s.name = a.name
                    WHERE a.action_no = r.action_no)), 'infinity')
         WHERE r.ctid = ANY (ARRAY(
                 SELECT c.ctid FROM taskq.run c
                  WHERE c.task_no = ANY ($1) AND c.grantable
                    AND taskq._is_untouched('taskq.run'::pg_catalog.regclass, c.ctid)
                    FOR NO KEY UPDATE SKIP LOCKED))
           AND r.grantable
        RETURNING r.task_no, r.nonce, r.tries, r.failures, r.deadline, r.priority, r.position,
                  r.dependencies, r.gated, r.prev_nonce, r.action_no, r.lane)
      SELECT g.task_no, g.nonce, g.tries, g.failures, g.deadline, g.priority, g.position,
             t.id, t.name, t.body, t.metadata,
             (SELECT p.checkpoint FROM taskq.progress p WHERE p.task_no = g.task_no),
             g.dependencies, g.gated, t.group_id, t.workgroup, t.merge_key, g.prev_nonce,
             g.action_no, g.lane
        FROM granted AS g
       CROSS JOIN LATERAL (
             SELECT t.id, a.name, t.body, t.metadata, t.group_id, t.workgroup, t.merge_key
               FROM taskq.task t, taskq.action a
              WHERE t.task_no = g.task_no AND a.action_no = t.action_no OFFSET 0) AS t",
    &[INT8ARRAYOID, INT8OID, TEXTOID, TIMESTAMPTZOID, INTERVALOID, BOOLOID],
);

/// Grants up to `room` entries of one action.
pub(super) fn one(
    request: &Request,
    action_no: i32,
    ranges: &Ranges,
    room: i32,
    base: i64,
    now: Time,
) -> Vec<Grant> {
    walk(&CLAIM_ONE, action_no, request, ranges, room, base, now)
}

/// Grants up to `room` entries of several actions, looking no deeper than `depth`.
pub(super) fn many(
    request: &Request,
    depth: i32,
    ranges: &Ranges,
    room: i32,
    base: i64,
    now: Time,
) -> Vec<Grant> {
    walk(&CLAIM_MANY, depth, request, ranges, room, base, now)
}

fn walk(
    claim: &'static Statement,
    first: i32,
    request: &Request,
    ranges: &Ranges,
    room: i32,
    base: i64,
    now: Time,
) -> Vec<Grant> {
    let asked = args![first, room, base, request.actor_id.as_str(), now, request.max_duration];
    claim.query(&[asked, &ranges.args()[..]].concat(), granted)
}

/// Grants those of the entries that nobody else holds; `seated` if they take slots.
pub(super) fn these(request: &Request, task_nos: &[i64], base: i64, now: Time, seated: bool) -> Vec<Grant> {
    let actor_id = request.actor_id.as_str();
    CLAIM_THESE.query(args![task_nos, base, actor_id, now, request.max_duration, seated], granted)
}

/// How many entries a claim of several actions can see, counted no further than `depth`.
pub(super) fn grantable(ranges: &Ranges, depth: i32) -> i32 {
    GRANTABLE.first(&[args![depth], &ranges.args()[..]].concat(), |row| row.need(1)).unwrap_or(0)
}

/// The next `depth` entries of several actions that are in no lanes.
pub(super) fn peek(action_nos: &[i32], depth: i32) -> Vec<Candidate> {
    PEEK.query(&[args![depth], &marks::ranges_of_look(action_nos).args()[..]].concat(), |row| Candidate {
        task_no: row.need(1),
        action_no: row.need(2),
        priority: row.need(3),
        position: row.need(4),
        lane: 0,
        group: None,
        turn: None,
    })
}

/// `taskq._is_untouched(relation regclass, row_version tid) -> boolean`
#[pg_extern(sql = "")]
fn taskq_is_untouched(relation: Oid, row: ItemPointerData) -> bool {
    is_untouched(relation, row)
}

fn granted(row: Row) -> Grant {
    Grant {
        task_no: row.need(1),
        nonce: row.need(2),
        tries: row.need(3),
        failures: row.need(4),
        deadline: row.need(5),
        priority: row.need(6),
        position: row.need(7),
        id: row.need(8),
        action: row.need(9),
        body: row.get(10),
        metadata: row.get(11),
        checkpoint: row.get(12),
        results: None,
        dependencies: row.need(13),
        gated: row.need(14),
        group_id: row.get(15),
        workgroup: row.get(16),
        merge_key: row.get(17),
        overdue: row.need::<i64>(18) != 0,
        action_no: row.need(19),
        lane: row.need(20),
    }
}
