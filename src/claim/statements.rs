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
use crate::guc;
use crate::pg::clock::Time;
use crate::pg::row_version::is_untouched;
use crate::pg::statement::{Arg, Row, Statement, args, sql};

/// Whether an entry `c` may be locked: nobody has touched it, and its merge key, if it has one, is this claim's (see
/// [`super::merge`]). Asked in this order.
macro_rules! free {
    () => {
        "CASE WHEN NOT taskq._is_untouched('taskq.run'::pg_catalog.regclass, c.ctid) THEN false
              WHEN c.key_hash IS NULL THEN true
              ELSE taskq._has_its_key(c.task_no, c.action_no, c.key_hash) END"
    };
}

/// A statement that grants: what it locks is its own, what becomes of that is the same for all. $1 base of the nonces,
/// $2 actor, $3 now, $4 max_duration, $5 that of the setting; from $6 on its own. `slots`: whether the entries take slots.
macro_rules! granting {
    (slots: $slots:literal, locked: [$($locked:expr),+], $($type:expr),+ $(,)?) => {
        Statement::new(
            sql!(
                "WITH granted AS (
                   UPDATE taskq.run r
                      SET prev_nonce = r.nonce, prev_deadline = CASE WHEN r.nonce <> 0 THEN r.deadline END,
                          prev_granted_at = CASE WHEN r.nonce <> 0 THEN r.granted_at END,
                          prev_actor_id = CASE WHEN r.nonce <> 0 THEN r.actor_id END,
                          nonce = $1 # r.task_no, grantable = false, tries = r.tries + 1,
                          granted_at = $3, actor_id = $2, keyed = false, limited = ", $slots, ",
                          deadline = COALESCE($3 OPERATOR(pg_catalog.+) COALESCE($4, r.max_duration, (
                              SELECT s.max_duration FROM taskq.action a JOIN taskq.action_setting s ON s.name = a.name
                               WHERE a.action_no = r.action_no), $5), 'infinity')
                    WHERE r.ctid = ANY (ARRAY(", $($locked),+, "))
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
                         WHERE t.task_no = g.task_no AND a.action_no = t.action_no OFFSET 0) AS t"
            ),
            &[INT8OID, TEXTOID, TIMESTAMPTZOID, INTERVALOID, INTERVALOID, $($type),+],
        )
    };
}

/// The next entries of one action, in order, without those that others have locked. Walks the stretches of
/// `run_claim_idx` one after the other. $6 limit, $7 action; $8 to $11 the [`Ranges`].
///
/// The function scan yields the stretches in their order, the nested loop looks into the next only when those before
/// have too little, and no plan can turn the two round.
static CLAIM_ONE: Statement = granting!(
    slots: "false",
    locked: ["SELECT c.ctid
               FROM unnest($8, $9, $10, $11) AS a(action_no, highest, lowest, start)
              CROSS JOIN LATERAL (
                    SELECT c.ctid FROM taskq.run c
                     WHERE c.action_no = $7 AND c.lane = 0 AND c.grantable
                       AND c.priority <= a.highest AND c.priority >= a.lowest AND c.position >= a.start
                       AND ", free!(), "
                     ORDER BY c.priority DESC, c.position
                     LIMIT $6
                       FOR NO KEY UPDATE SKIP LOCKED) AS c
              LIMIT $6"],
    INT4OID, INT4OID, INT4ARRAYOID, INT4ARRAYOID, INT4ARRAYOID, INT8ARRAYOID,
);

/// The next entries of several actions: the first of each stretch are merged without locking them, then the best are
/// locked, one after the other. What another call holds is passed over by looking deeper the next time round ($7). $6 limit; $8 to $11 the
/// [`Ranges`].
static CLAIM_MANY: Statement = granting!(
    slots: "false",
    locked: ["SELECT c.ctid
               FROM pg_catalog.unnest(ARRAY(
                      SELECT p.ctid
                        FROM unnest($8, $9, $10, $11) AS a(action_no, highest, lowest, start)
                       CROSS JOIN LATERAL (
                             SELECT c.ctid, c.priority, c.position FROM taskq.run c
                              WHERE c.action_no = a.action_no AND c.lane = 0 AND c.grantable
                                AND c.priority <= a.highest AND c.priority >= a.lowest AND c.position >= a.start
                              ORDER BY c.priority DESC, c.position
                              LIMIT $7) AS p
                       ORDER BY p.priority DESC, p.position
                       LIMIT $7)) AS h(place)
              CROSS JOIN LATERAL (
                    SELECT c.ctid FROM taskq.run c
                     WHERE c.ctid = h.place AND c.grantable AND ", free!(), "
                       FOR NO KEY UPDATE SKIP LOCKED) AS c
              LIMIT $6"],
    INT4OID, INT4OID, INT4ARRAYOID, INT4ARRAYOID, INT4ARRAYOID, INT8ARRAYOID,
);

/// These entries, by the primary key of `run`, where nobody else holds them. $6 task numbers, $7 whether they take slots.
static CLAIM_THESE: Statement = granting!(
    slots: "$7",
    locked: ["SELECT c.ctid FROM taskq.run c
              WHERE c.task_no = ANY ($6) AND c.grantable
                AND ", free!(), "
                FOR NO KEY UPDATE SKIP LOCKED"],
    INT8ARRAYOID, BOOLOID,
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

/// Grants up to `room` entries of one action.
pub(super) fn one(
    request: &Request,
    action_no: i32,
    ranges: &Ranges,
    room: i32,
    base: i64,
    now: Time,
) -> Vec<Grant> {
    grant(&CLAIM_ONE, request, base, now, &[args![room, action_no], &ranges.args()[..]].concat())
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
    grant(&CLAIM_MANY, request, base, now, &[args![room, depth], &ranges.args()[..]].concat())
}

/// Grants those of the entries that nobody else holds; `seated` if they take slots.
pub(super) fn these(request: &Request, task_nos: &[i64], base: i64, now: Time, seated: bool) -> Vec<Grant> {
    grant(&CLAIM_THESE, request, base, now, args![task_nos, seated])
}

fn grant(statement: &'static Statement, request: &Request, base: i64, now: Time, own: &[Arg]) -> Vec<Grant> {
    // Neither costs a look: the setting is in the backend.
    let common = args![base, request.actor_id.as_str(), now, request.max_duration, guc::max_duration()];
    statement.query(&[common, own].concat(), granted)
}

/// How many entries a claim of several actions can see, counted no further than `depth`.
pub(super) fn grantable(ranges: &Ranges, depth: i32) -> i32 {
    GRANTABLE.first(&[args![depth], &ranges.args()[..]].concat(), |row| row.need(1)).unwrap_or(0)
}

/// The next `depth` entries of several actions that are in no lanes, from a position on.
pub(super) fn peek(action_nos: &[i32], depth: i32, from: i64) -> Vec<Candidate> {
    PEEK.query(&[args![depth], &marks::ranges_from(action_nos, from).args()[..]].concat(), |row| Candidate {
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
