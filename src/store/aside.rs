//! Entries of `run` that may not run now and cannot leave the table: they are *parked in place*.
//!
//! An entry that its group, its workgroup or its merge key keeps back is moved to `parked` or `scheduled`, where claims do not
//! meet it. Two kinds cannot go there. One whose deadline has passed still belongs to its late worker, unless it is to ride: the
//! row has the token that a return or an extension looks for. And one that another transaction has locked FOR KEY SHARE, as to
//! add a dependent, cannot be removed without waiting for that. These stay, not grantable, with the number of the
//! reason in `run.aside`: claims skip them as they skip what is in progress. The transaction that ends the reason finds
//! them by that number. A late worker can still return and extend its task: the entry keeps its token, actor and
//! deadline. Only a rider loses them.
//!
//! **Nothing is stranded, and nothing is waited for.** They are parked under the same locks that stand for the reason
//! as what is parked (see `claim::gates`). But the transaction that ends the reason must not wait for a row of `run`:
//! the transaction that has it locked takes such locks in the order of task numbers, and may wait for a row that the
//! other one has. An entry that cannot be locked at once gets a lease, and upkeep tries again after a second. An entry
//! whose reason is a time gets a lease until that time.
//!
//! Two reasons may have the same number. Then one of them may end too early for an entry, and the next claim that
//! meets it parks it again. Riders have the number of their leader, as a negative one, which no other reason has.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock;
use crate::number::{ReasonNo, TaskNo};
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::{Statement, sql};
use crate::store::announce::announce;
use crate::store::freed::Freed;
use crate::store::lease;
use crate::store::reason::rides;
use crate::token::{Nonce, in_pieces};

/// An entry that this claim has taken a moment ago goes back to what it was before, in another place: aside. A rider's
/// old token is void.
static PARK_TAKEN: Statement<(&[TaskNo], &[ReasonNo]), (TaskNo, Nonce)> = Statement::new(
    c"UPDATE taskq.run r
         SET nonce = CASE WHEN u.aside < 0 THEN 0 ELSE r.prev_nonce END,
             deadline = CASE WHEN u.aside < 0 THEN 'infinity' ELSE COALESCE(r.prev_deadline, 'infinity') END,
             granted_at = CASE WHEN u.aside < 0 THEN NULL ELSE r.prev_granted_at END,
             actor_id = CASE WHEN u.aside < 0 THEN NULL ELSE r.prev_actor_id END,
             grantable = false, limited = false, keyed = false, tries = r.tries - 1, aside = u.aside
        FROM unnest($1, $2) AS u(task_no, aside)
       WHERE r.task_no = u.task_no
      RETURNING r.task_no, r.nonce",
);

/// Parks in place entries that this transaction has granted: each under the number of its reason, with the time at which
/// that ends if it has one.
pub(crate) fn set_taken(entries: &[(TaskNo, ReasonNo, Option<Time>)]) {
    if entries.is_empty() {
        return;
    }
    let (task_nos, reasons): (Vec<TaskNo>, Vec<ReasonNo>) =
        entries.iter().map(|(n, aside, _)| (*n, *aside)).unzip();
    let set: Vec<(TaskNo, Nonce)> = PARK_TAKEN.query((task_nos, reasons));
    look_at(&set, entries);
}

/// Entries that are not granted, without those that another transaction has locked for a change.
static PARK_IN_PLACE: Statement<(&[TaskNo], &[ReasonNo]), (TaskNo, Nonce)> = Statement::new(
    c"WITH met AS MATERIALIZED (
        SELECT r.task_no, u.aside FROM unnest($1, $2) AS u(task_no, aside)
         CROSS JOIN LATERAL (SELECT r.task_no FROM taskq.run r
                              WHERE r.task_no = u.task_no AND r.grantable
                                FOR NO KEY UPDATE SKIP LOCKED) AS r)
      UPDATE taskq.run r SET grantable = false, aside = m.aside
        FROM met AS m WHERE r.task_no = m.task_no AND r.grantable
      RETURNING r.task_no, r.nonce",
);

/// Parks in place entries that are grantable; returns how many. One that another transaction has locked for a change is
/// left to that.
pub(crate) fn set(entries: &[(TaskNo, ReasonNo, Option<Time>)]) -> usize {
    if entries.is_empty() {
        return 0;
    }
    assign_transaction_id();
    let (task_nos, reasons): (Vec<TaskNo>, Vec<ReasonNo>) =
        entries.iter().map(|(n, aside, _)| (*n, *aside)).unzip();
    let set: Vec<(TaskNo, Nonce)> = PARK_IN_PLACE.query((task_nos, reasons));
    look_at(&set, entries);
    set.len()
}

/// Has upkeep look at those whose reason ends with time. `set` are numbers and nonces.
fn look_at(set: &[(TaskNo, Nonce)], entries: &[(TaskNo, ReasonNo, Option<Time>)]) {
    let until: HashMap<TaskNo, Time> = entries.iter().filter_map(|e| Some((e.0, e.2?))).collect();
    for (task_no, nonce) in set {
        if let Some(until) = until.get(task_no) {
            lease::record(&[(*until, *task_no)], nonce.base(*task_no));
        }
    }
}

/// Back at the end of their priority, in their order. With their token, if they had one.
macro_rules! release {
    ($which:literal) => {
        Statement::new(sql!(
                "WITH free AS MATERIALIZED (
                   SELECT r.task_no, r.priority, r.position FROM taskq.run r WHERE ", $which, "
                      FOR NO KEY UPDATE SKIP LOCKED)
                 UPDATE taskq.run r SET grantable = true, aside = NULL, position = f.position
                   FROM (SELECT o.task_no,
                                pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass) AS position
                           FROM (SELECT f.task_no FROM free AS f ORDER BY f.priority DESC, f.position) AS o) AS f
                  WHERE r.task_no = f.task_no
                 RETURNING r.action_no"
        ))
    };
}
static RELEASE: Statement<&[ReasonNo], i32> = release!("r.aside = ANY ($1)");
static STILL_ASIDE: Statement<&[ReasonNo], (TaskNo, Nonce)> =
    Statement::new(c"SELECT r.task_no, r.nonce FROM taskq.run r WHERE r.aside = ANY ($1)");

/// The reasons have ended: what was parked in place under them is ready again. Where another transaction has an entry locked
/// for a change, upkeep tries again.
pub(crate) fn release(reasons: &[ReasonNo]) {
    if reasons.is_empty() || STILL_ASIDE.execute(reasons) == 0 {
        return;
    }
    assign_transaction_id();
    let actions: Vec<i32> = RELEASE.query(reasons);
    announce(&actions);
    let left: Vec<(TaskNo, Nonce)> = STILL_ASIDE.query(reasons);
    again(&left);
}

/// Upkeep looks once more a little later.
fn again(left: &[(TaskNo, Nonce)]) {
    let soon = clock::now() + LOCKED_ROW_AGAIN_AFTER;
    for (task_no, nonce) in left {
        lease::record(&[(soon, *task_no)], nonce.base(*task_no));
    }
}

/// How soon an entry whose row was locked is looked at again.
const LOCKED_ROW_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A rider is not looked at while its leader holds the merge key.
static LOOK_AGAIN: Statement<(&[TaskNo], &[Nonce]), i32> = release!(
    "r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND r.aside IS NOT NULL
       AND (r.aside > 0 OR NOT EXISTS (SELECT FROM taskq.run l WHERE l.task_no = -r.aside AND l.keyed OFFSET 0))"
);
static BUSY: Statement<(&[TaskNo], &[Nonce]), (TaskNo, Nonce)> = Statement::new(
    c"SELECT r.task_no, r.nonce FROM taskq.run r
       WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND r.aside IS NOT NULL
         AND (r.aside > 0 OR NOT EXISTS (SELECT FROM taskq.run l WHERE l.task_no = -r.aside AND l.keyed OFFSET 0))",
);

/// The leases of these tasks (numbers and nonces) have elapsed. Those that are parked in place are ready again, and the next
/// claim looks whether they may run, except riders of a leader that holds the merge key, and those that are locked, which upkeep
/// looks at once more. Tells whether any is ready again.
pub(crate) fn look_again(held: &[(TaskNo, Nonce)]) -> bool {
    let pieces = in_pieces(held.iter().copied());
    let is_there = |(task_nos, nonces): &(Vec<TaskNo>, Vec<Nonce>)| {
        BUSY.execute((task_nos.as_slice(), nonces.as_slice())) > 0
    };
    let pieces: Vec<_> = pieces.into_iter().filter(is_there).collect();
    if pieces.is_empty() {
        return false;
    }
    assign_transaction_id();
    let (mut actions, mut busy): (Vec<i32>, Vec<(TaskNo, Nonce)>) = (Vec::new(), Vec::new());
    for (task_nos, nonces) in pieces {
        actions.extend(LOOK_AGAIN.query((task_nos.as_slice(), nonces.as_slice())));
        busy.extend(BUSY.query((task_nos, nonces)));
    }
    announce(&actions);
    again(&busy);
    !actions.is_empty()
}

/// Riders are removed once their leader has settled. What another transaction has locked is not waited for: [`riders`]
/// makes it ready again, or upkeep does.
static REMOVE_RIDERS: Statement<&[ReasonNo], (ReasonNo, Freed)> = Statement::new(
    c"WITH free AS MATERIALIZED (
        SELECT r.task_no FROM taskq.run r WHERE r.aside = ANY ($1) FOR UPDATE SKIP LOCKED)
      DELETE FROM taskq.run r USING free AS f WHERE r.task_no = f.task_no
      RETURNING r.aside, r.task_no, r.tries, r.failures, r.dependencies",
);

/// Takes out of `run` what rides there on tasks that have settled, by these, unless it is locked.
pub(crate) fn riders(leaders: &[TaskNo]) -> HashMap<TaskNo, Vec<Freed>> {
    let reasons: Vec<ReasonNo> = leaders.iter().map(|leader| rides(*leader)).collect();
    let mut riders: HashMap<TaskNo, Vec<Freed>> = HashMap::new();
    if STILL_ASIDE.execute(reasons.as_slice()) == 0 {
        return riders;
    }
    REMOVE_RIDERS.map(reasons.as_slice(), |(aside, freed)| {
        riders.entry(TaskNo(-aside.0)).or_default().push(freed);
    });
    release(&reasons);
    riders
}
