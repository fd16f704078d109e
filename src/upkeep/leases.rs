//! Deadlines: recorded at each grant, looked after once they have passed.
//!
//! A task whose deadline has passed goes to the end of its priority *with its token*: until somebody else
//! is granted it, a late return still succeeds. If that was its last try it is aborted instead.

use std::collections::{BTreeMap, HashSet};

use pgrx::pg_sys::{INT4OID, INT8ARRAYOID, INT8OID, TIMESTAMPTZOID};

use super::Upkeep;
use crate::claim::merge;
use crate::flow::actions::try_limits;
use crate::flow::slots;
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::{Statement, args};
use crate::settle::{Ending, settle};
use crate::state::Cause;
use crate::store::live::Live;
use crate::store::{aside, attempts, ready};
use crate::token::nonce;
use crate::wake;

static RECORD: Statement = Statement::new(
    c"INSERT INTO taskq.lease (deadline, base, task_nos) VALUES ($1, $2, $3)",
    &[TIMESTAMPTZOID, INT8OID, INT8ARRAYOID],
);

/// Remembers the deadlines of tasks granted or extended under one base.
pub(crate) fn record(granted: &[(Time, i64)], base: i64) {
    let mut by_deadline: BTreeMap<Time, Vec<i64>> = BTreeMap::new();
    for (deadline, task_no) in granted {
        if *deadline != Time::INFINITY {
            by_deadline.entry(*deadline).or_default().push(*task_no);
        }
    }
    for (deadline, task_nos) in by_deadline {
        RECORD.execute(args![deadline, base, task_nos]);
        wake::timer(deadline);
        wake::due(deadline);
    }
}

/// Walks `lease_deadline_idx`. A lease that somebody else is looking after is passed over.
static TAKE: Statement = Statement::new(
    c"DELETE FROM taskq.lease d
       WHERE d.ctid = ANY (ARRAY(
               SELECT l.ctid FROM taskq.lease l WHERE l.deadline <= $1
                ORDER BY l.deadline LIMIT $2 FOR UPDATE SKIP LOCKED))
      RETURNING d.base, d.task_nos",
    &[TIMESTAMPTZOID, INT4OID],
);

/// Tasks still held under one of these nonces with a deadline that has passed. The nonces of different
/// tasks differ, so the two sets need no pairing.
static OVERDUE: Statement = Statement::new(
    c"SELECT r.task_no, r.nonce FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND NOT r.grantable AND r.aside IS NULL
         AND r.deadline <= $3",
    &[INT8ARRAYOID, INT8ARRAYOID, TIMESTAMPTZOID],
);
static LOCK: Statement = Statement::new(
    c"SELECT r.task_no, r.tries, r.failures, r.dependencies, r.nonce, r.granted_at, r.actor_id,
             r.limited, r.keyed
        FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND NOT r.grantable AND r.aside IS NULL
         AND r.deadline <= $3
         FOR UPDATE SKIP LOCKED",
    &[INT8ARRAYOID, INT8ARRAYOID, TIMESTAMPTZOID],
);
static REQUEUE: Statement = Statement::new(
    c"UPDATE taskq.run r
         SET grantable = true, limited = false, keyed = false,
             position = pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass)
       WHERE r.task_no = ANY ($1)
      RETURNING r.action_no",
    &[INT8ARRAYOID],
);
static REMOVE: Statement =
    Statement::new(c"DELETE FROM taskq.run r WHERE r.task_no = ANY ($1)", &[INT8ARRAYOID]);

/// How soon a task whose row was locked is looked at again.
const AGAIN: i64 = 1_000_000;

/// Looks after up to `bound` leases that have passed.
pub(crate) fn elapsed(bound: i32, now: Time) -> Upkeep {
    let leases: Vec<(i64, Vec<i64>)> = TAKE.query(args![now, bound], |row| (row.need(1), row.need(2)));
    if leases.is_empty() {
        return Upkeep::default();
    }
    let more = leases.len() as i32 >= bound;
    let held: Vec<(i64, i64)> =
        leases.iter().flat_map(|(base, task_nos)| task_nos.iter().map(|n| (*n, nonce(*base, *n)))).collect();
    let looked_again = aside::look_again(&held);
    let task_nos: Vec<i64> = held.iter().map(|(task_no, _)| *task_no).collect();
    let nonces: Vec<i64> = held.iter().map(|(_, nonce)| *nonce).collect();
    let overdue: Vec<(i64, i64)> =
        OVERDUE.query(args![task_nos.as_slice(), nonces.as_slice(), now], |row| (row.need(1), row.need(2)));
    if overdue.is_empty() {
        return Upkeep { changed: looked_again, more, ..Upkeep::default() };
    }
    let locked: Vec<Live> = LOCK.query(args![task_nos, nonces, now], Live::in_run);
    keep_busy(&overdue, &locked, now);
    if locked.is_empty() {
        return Upkeep { changed: looked_again, more, ..Upkeep::default() };
    }
    end_tries(locked, now);
    Upkeep { changed: true, more, ..Upkeep::default() }
}

/// Leases of tasks that somebody has locked just now (to return or extend them, or for a dependency) are
/// kept, or a rollback there would leave the task without one.
fn keep_busy(overdue: &[(i64, i64)], locked: &[Live], now: Time) {
    let locked: HashSet<i64> = locked.iter().map(|l| l.task_no).collect();
    for (task_no, its_nonce) in overdue.iter().filter(|(n, _)| !locked.contains(n)) {
        let again = Time(now.0 + AGAIN);
        RECORD.execute(args![again, nonce(*its_nonce, *task_no), vec![*task_no]]);
    }
}

/// The try of each has ended: on to the next one, or to an abort if that was the last.
fn end_tries(locked: Vec<Live>, now: Time) {
    assign_transaction_id();
    let task_nos: Vec<i64> = locked.iter().map(|l| l.task_no).collect();
    let limits = try_limits(&task_nos);
    // The history has the earlier ones; this one makes one more.
    let counted = limits.iter().filter(|(_, limit)| limit.max_timeouts.is_some_and(|max| max > 1));
    let timeouts = attempts::timeouts(&counted.map(|(task_no, _)| *task_no).collect::<Vec<_>>());
    let seated = locked.iter().filter(|l| l.limited).map(|l| l.task_no);
    slots::release(&seated.collect::<Vec<_>>());
    let (mut exhausted, mut left) = (Vec::new(), Vec::new());
    for live in locked {
        let limit = limits.get(&live.task_no).copied().unwrap_or_default();
        let over = limit.max_tries.is_some_and(|max| live.tries >= max)
            || limit.max_timeouts.is_some_and(|max| timeouts.get(&live.task_no).unwrap_or(&0) + 1 >= max);
        if over { exhausted.push(live) } else { left.push(live) }
    }
    if !left.is_empty() {
        attempts::record(&left.iter().map(|l| (l, None)).collect::<Vec<_>>(), "timeout", now);
        let holders: Vec<i64> = left.iter().filter(|l| l.keyed).map(|l| l.task_no).collect();
        merge::given_back(&holders);
        let left: Vec<i64> = left.iter().map(|l| l.task_no).collect();
        ready::announce(&REQUEUE.query(args![left], |row| row.need(1)));
    }
    if !exhausted.is_empty() {
        REMOVE.execute(args![exhausted.iter().map(|l| l.task_no).collect::<Vec<_>>()]);
        settle(
            exhausted.iter().map(|l| Ending::abort(l, Cause::Deadline, Some(timed_out(l)))).collect(),
            now,
        );
    }
}

fn timed_out(live: &Live) -> String {
    format!(
        "the deadline passed on try {}, and there is no other (actor \"{}\")",
        live.tries,
        live.actor_id.as_deref().unwrap_or_default()
    )
}
