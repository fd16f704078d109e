//! Locking and removing the live rows of tasks: those in `run`, `blocked`, `scheduled` and `parked`.
//!
//! Whoever locks live rows of tasks that its caller named locks them here, in the order that [`super::order`] has: first
//! `run`, then `blocked`, `scheduled` and `parked`, in each by task number. Signals, claims and upkeep take theirs
//! with SKIP LOCKED and wait for nobody.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;

use pgrx::pg_sys::INT8ARRAYOID;

use crate::flow::slots;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Row, Statement, args};
use crate::settle::commit;
use crate::state::Outcome;
use crate::store::numbers;
use crate::store::order::{self, Rank};

/// Where a live task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Blocked { remaining: i32, not_before: Option<Time> },
    Parked,
    Run { nonce: i64 },
    Scheduled { due: Time },
}

/// A live row, locked by this transaction.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) task_no: i64,
    pub(crate) place: Place,
    pub(crate) tries: i32,
    pub(crate) failures: i32,
    pub(crate) dependencies: i32,
    pub(crate) granted_at: Option<Time>,
    pub(crate) actor_id: Option<String>,
    /// Its performance holds a slot.
    pub(crate) limited: bool,
    /// It holds its merge key.
    pub(crate) keyed: bool,
}

impl Live {
    /// Whether some actor's token for it is valid.
    pub(crate) fn in_progress(&self) -> bool {
        matches!(self.place, Place::Run { nonce } if nonce != 0)
    }

    /// How many dependencies have signalled so far.
    pub(crate) fn signals(&self) -> i32 {
        match self.place {
            Place::Blocked { remaining, .. } => self.dependencies - remaining,
            _ => self.dependencies,
        }
    }
}

/// How firmly rows are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Firmness {
    /// FOR UPDATE: about to be changed or removed.
    Change,
    /// FOR KEY SHARE: may be granted, extended and counted down, but cannot settle before this
    /// transaction ends. An edge from the task to a new one is then never overlooked by its settling.
    Hold,
}

/// A statement that locks rows, in four ways.
struct Lock {
    change: Statement,
    hold: Statement,
    /// The same without waiting: rows that somebody else has locked are left out.
    try_change: Statement,
    try_hold: Statement,
}

impl Lock {
    fn statement(&self, firmness: Firmness, waiting: bool) -> &Statement {
        match (firmness, waiting) {
            (Firmness::Change, true) => &self.change,
            (Firmness::Hold, true) => &self.hold,
            (Firmness::Change, false) => &self.try_change,
            (Firmness::Hold, false) => &self.try_hold,
        }
    }
}

/// The four forms of a statement over tasks by number.
macro_rules! lock {
    ($sql:literal) => {
        Lock {
            change: lock!($sql, " FOR UPDATE\0"),
            hold: lock!($sql, " FOR KEY SHARE\0"),
            try_change: lock!($sql, " FOR UPDATE SKIP LOCKED\0"),
            try_hold: lock!($sql, " FOR KEY SHARE SKIP LOCKED\0"),
        }
    };
    ($sql:literal, $clause:literal) => {
        Statement::new(
            match CStr::from_bytes_with_nul(concat!($sql, $clause).as_bytes()) {
                Ok(sql) => sql,
                Err(_) => panic!("one NUL, at the end"),
            },
            &[INT8ARRAYOID],
        )
    };
}

static RUN: Lock = lock!(
    "SELECT r.task_no, r.tries, r.failures, r.dependencies, r.nonce, r.granted_at, r.actor_id, r.limited,
            r.keyed
       FROM taskq.run r WHERE r.task_no = ANY ($1) ORDER BY r.task_no"
);
static BLOCKED: Lock = lock!(
    "SELECT b.task_no, b.tries, b.failures, b.dependencies, b.remaining, b.not_before
       FROM taskq.blocked b WHERE b.task_no = ANY ($1) ORDER BY b.task_no"
);
static SCHEDULED: Lock = lock!(
    "SELECT s.task_no, s.tries, s.failures, s.dependencies, s.due
       FROM taskq.scheduled s WHERE s.task_no = ANY ($1) ORDER BY s.task_no"
);
static PARKED: Lock = lock!(
    "SELECT p.task_no, p.tries, p.failures, p.dependencies
       FROM taskq.parked p WHERE p.task_no = ANY ($1) ORDER BY p.task_no"
);
static SETTLED_ROWS: Lock =
    lock!("SELECT s.task_no, s.code FROM taskq.settled s WHERE s.task_no = ANY ($1) ORDER BY s.task_no");

/// Which of the tasks have a live row.
static LIVING: Statement = Statement::new(
    c"SELECT u.task_no FROM pg_catalog.unnest($1) AS u(task_no)
       WHERE EXISTS (SELECT FROM taskq.run r WHERE r.task_no = u.task_no OFFSET 0)
          OR EXISTS (SELECT FROM taskq.blocked b WHERE b.task_no = u.task_no OFFSET 0)
          OR EXISTS (SELECT FROM taskq.scheduled s WHERE s.task_no = u.task_no OFFSET 0)
          OR EXISTS (SELECT FROM taskq.parked p WHERE p.task_no = u.task_no OFFSET 0)",
    &[INT8ARRAYOID],
);
static UNSETTLED: Statement = Statement::new(
    c"SELECT t.task_no FROM taskq.task t
       WHERE t.task_no = ANY ($1)
         AND NOT EXISTS (SELECT FROM taskq.settled s WHERE s.task_no = t.task_no OFFSET 0)",
    &[INT8ARRAYOID],
);

fn in_run(row: Row) -> Live {
    Live {
        place: Place::Run { nonce: row.need(5) },
        granted_at: row.get(6),
        actor_id: row.get(7),
        limited: row.need(8),
        keyed: row.need(9),
        ..counted(row)
    }
}

fn in_blocked(row: Row) -> Live {
    Live { place: Place::Blocked { remaining: row.need(5), not_before: row.get(6) }, ..counted(row) }
}

fn in_scheduled(row: Row) -> Live {
    Live { place: Place::Scheduled { due: row.need(5) }, ..counted(row) }
}

fn in_parked(row: Row) -> Live {
    Live { place: Place::Parked, ..counted(row) }
}

fn counted(row: Row) -> Live {
    Live {
        task_no: row.need(1),
        place: Place::Scheduled { due: Time::INFINITY },
        tries: row.need(2),
        failures: row.need(3),
        dependencies: row.need(4),
        granted_at: None,
        actor_id: None,
        limited: false,
        keyed: false,
    }
}

/// Locks the live rows of those of the tasks that are not settled, waiting for whoever holds them.
///
/// A task may move from one table to another between two of the statements (each sees what was committed
/// when it began). What is in no table and not settled is looked for again: whoever moved it has
/// committed by then, since we waited for it or saw its effect.
///
/// A restartable call waits only in the first round, and only if it holds no row yet (see [`super::order`]).
pub(crate) fn lock(task_nos: &[i64], firmness: Firmness) -> HashMap<i64, Live> {
    let mut found: HashMap<i64, Live> = HashMap::with_capacity(task_nos.len());
    let mut missing: Vec<i64> = task_nos.to_vec();
    missing.sort_unstable();
    missing.dedup();
    while !missing.is_empty() {
        check_for_interrupts();
        let waiting = order::may_wait(Rank::Live);
        for (table, read) in [
            (&RUN, in_run as fn(Row) -> Live),
            (&BLOCKED, in_blocked as fn(Row) -> Live),
            (&SCHEDULED, in_scheduled as fn(Row) -> Live),
            (&PARKED, in_parked as fn(Row) -> Live),
        ] {
            if !missing.is_empty() {
                found.extend(table.statement(firmness, waiting).query(args![missing.as_slice()], |row| {
                    let live = read(row);
                    (live.task_no, live)
                }));
                missing.retain(|task_no| !found.contains_key(task_no));
            }
        }
        if !found.is_empty() {
            order::holds(Rank::Live);
        }
        if !missing.is_empty() && !waiting && LIVING.execute(args![missing.as_slice()]) > 0 {
            order::restart_with_live(task_nos, firmness);
        }
        if !missing.is_empty() {
            missing = UNSETTLED.query(args![missing.as_slice()], |row| row.need(1));
        }
    }
    // Signals to counters that are locked here are deferred: they are counted before this transaction commits.
    commit::look_again(
        found.values().filter(|l| matches!(l.place, Place::Blocked { .. })).map(|l| l.task_no).collect(),
    );
    found
}

/// Finds tasks by id and locks them. A task may be replaced while we wait for it; then the id is another
/// task's, and that one is locked as well.
pub(crate) fn lock_by_id(ids: &[&str], firmness: Firmness) -> (HashMap<String, i64>, HashMap<i64, Live>) {
    let mut found = numbers::by_id(ids);
    loop {
        let task_nos: Vec<i64> = found.values().copied().collect();
        if task_nos.is_empty() {
            return (found, HashMap::new());
        }
        let rows = lock(&task_nos, firmness);
        let now = numbers::by_id(ids);
        if now == found {
            return (found, rows);
        }
        found = now;
    }
}

/// The tasks with these ids: their numbers, the locked rows of those that are live, and how the others
/// ended, which is held as well. A task may come back to life (by a retry) or go while we wait for its row;
/// then it is looked for again.
#[allow(clippy::type_complexity)]
pub(crate) fn lock_any(
    ids: &[&str],
    firmness: Firmness,
    of_settled: Firmness,
) -> (HashMap<String, i64>, HashMap<i64, Live>, HashMap<i64, Outcome>) {
    loop {
        let (found, rows) = lock_by_id(ids, firmness);
        let rest: Vec<i64> = found.values().copied().filter(|n| !rows.contains_key(n)).collect();
        if rest.is_empty() {
            return (found, rows, HashMap::new());
        }
        let ended = hold_outcomes(&rest, of_settled);
        // The end of a task that was replaced while we waited for it is still there to be read, and the id another's.
        if ended.len() == rest.len() && numbers::by_id(ids) == found {
            return (found, rows, ended);
        }
        check_for_interrupts();
    }
}

static REMOVE_RUN: Statement =
    Statement::new(c"DELETE FROM taskq.run r WHERE r.task_no = ANY ($1)", &[INT8ARRAYOID]);
static REMOVE_BLOCKED: Statement =
    Statement::new(c"DELETE FROM taskq.blocked b WHERE b.task_no = ANY ($1)", &[INT8ARRAYOID]);
static REMOVE_SCHEDULED: Statement =
    Statement::new(c"DELETE FROM taskq.scheduled s WHERE s.task_no = ANY ($1)", &[INT8ARRAYOID]);
static REMOVE_PARKED: Statement =
    Statement::new(c"DELETE FROM taskq.parked p WHERE p.task_no = ANY ($1)", &[INT8ARRAYOID]);
static REMOVE_SIGNALS: Statement =
    Statement::new(c"DELETE FROM taskq.signal s WHERE s.run_no = ANY ($1)", &[INT8ARRAYOID]);

/// Removes live rows that this transaction has locked for a change.
pub(crate) fn remove<'a>(rows: impl IntoIterator<Item = &'a Live>) {
    let (mut run, mut blocked, mut scheduled) = (Vec::new(), Vec::new(), Vec::new());
    let mut parked = Vec::new();
    let mut seated = Vec::new();
    for row in rows {
        if row.limited {
            seated.push(row.task_no);
        }
        match row.place {
            Place::Run { .. } => run.push(row.task_no),
            Place::Blocked { .. } => blocked.push(row.task_no),
            Place::Parked => parked.push(row.task_no),
            Place::Scheduled { .. } => scheduled.push(row.task_no),
        }
    }
    for (statement, task_nos) in [
        (&REMOVE_RUN, &run),
        (&REMOVE_BLOCKED, &blocked),
        (&REMOVE_SIGNALS, &blocked),
        (&REMOVE_SCHEDULED, &scheduled),
        (&REMOVE_PARKED, &parked),
    ] {
        if !task_nos.is_empty() {
            statement.execute(args![task_nos.as_slice()]);
        }
    }
    slots::release(&seated);
}

static SETTLED: Statement = Statement::new(
    c"SELECT s.task_no, s.code FROM taskq.settled s WHERE s.task_no = ANY ($1)",
    &[INT8ARRAYOID],
);

/// How those of the tasks that are settled ended; they are not removed before this transaction ends, so
/// that an edge to one of them cannot be left behind by its removal. Waits for one that is being removed.
pub(crate) fn hold_outcomes(task_nos: &[i64], firmness: Firmness) -> HashMap<i64, Outcome> {
    let waiting = order::may_wait(Rank::Settled);
    let held: HashMap<i64, Outcome> = SETTLED_ROWS
        .statement(firmness, waiting)
        .query(args![task_nos], |row| (row.need(1), Outcome::from_stored(row.need(2))))
        .into_iter()
        .collect();
    if !held.is_empty() {
        order::holds(Rank::Settled);
    }
    if !waiting && outcomes(task_nos).keys().any(|task_no| !held.contains_key(task_no)) {
        order::restart_with_settled(task_nos, firmness);
    }
    held
}

/// How those of the tasks that are settled ended.
pub(crate) fn outcomes(task_nos: &[i64]) -> HashMap<i64, Outcome> {
    SETTLED
        .query(args![task_nos], |row| (row.need(1), Outcome::from_stored(row.need(2))))
        .into_iter()
        .collect()
}

/// Edges by number. They are found first and then locked in the order in which they are stored, as below: a scan by
/// `ctid` sorts, and no edge is ever moved.
static LOCK_EDGES: Statement = Statement::new(
    c"SELECT d.after_no, d.run_no FROM taskq.dependency d
       WHERE d.ctid = ANY (ARRAY(
               SELECT e.ctid FROM unnest($1, $2) AS u(after_no, run_no)
                CROSS JOIN LATERAL (SELECT e.ctid FROM taskq.dependency e
                                     WHERE e.after_no = u.after_no AND e.run_no = u.run_no OFFSET 0) AS e))
         FOR UPDATE",
    &[INT8ARRAYOID, INT8ARRAYOID],
);

/// Locks dependencies that are about to be removed.
pub(crate) fn lock_edges(edges: &[(i64, i64)]) {
    let (after, run): (Vec<i64>, Vec<i64>) = edges.iter().copied().unzip();
    LOCK_EDGES.execute(args![after, run]);
    order::holds(Rank::Edges);
}

/// Edges at either end of the tasks, in the order in which they are stored.
static EDGES: Lock = lock!(
    "SELECT d.after_no, d.run_no FROM taskq.dependency d
      WHERE d.ctid = ANY (ARRAY(SELECT a.ctid FROM taskq.dependency a WHERE a.after_no = ANY ($1)
                      UNION ALL SELECT r.ctid FROM taskq.dependency r WHERE r.run_no = ANY ($1)))"
);
static SEEN_EDGES: Statement = Statement::new(
    c"SELECT d.after_no, d.run_no FROM taskq.dependency d WHERE d.after_no = ANY ($1)
      UNION SELECT d.after_no, d.run_no FROM taskq.dependency d WHERE d.run_no = ANY ($1)",
    &[INT8ARRAYOID],
);

/// Locks the dependencies of the tasks, on others and of others on them, before they are removed: the other end of
/// each may be on its way out as well, by somebody who removes its dependencies in another order.
pub(crate) fn lock_edges_of(task_nos: &[i64]) {
    let read = |row: Row| (row.need::<i64>(1), row.need::<i64>(2));
    let waiting = order::may_wait(Rank::Edges);
    let locked = EDGES.statement(Firmness::Change, waiting).query(args![task_nos], read);
    if !locked.is_empty() {
        order::holds(Rank::Edges);
    }
    if !waiting {
        let locked: HashSet<(i64, i64)> = locked.into_iter().collect();
        let seen = SEEN_EDGES.query(args![task_nos], read);
        if seen.iter().any(|edge| !locked.contains(edge)) {
            order::restart_with_edges(&seen);
        }
    }
}

/// What [`try_lock_edges_of`] came to.
pub(crate) struct TriedEdges {
    /// There are some.
    pub(crate) any: bool,
    /// Tasks at the ends of those that somebody else has locked.
    pub(crate) busy: HashSet<i64>,
}

/// Locks the dependencies of the tasks as far as nobody else has, waiting for none.
pub(crate) fn try_lock_edges_of(task_nos: &[i64]) -> TriedEdges {
    let read = |row: Row| (row.need::<i64>(1), row.need::<i64>(2));
    let seen = SEEN_EDGES.query(args![task_nos], read);
    let mut busy = HashSet::new();
    if !seen.is_empty() {
        let locked: HashSet<(i64, i64)> =
            EDGES.statement(Firmness::Change, false).query(args![task_nos], read).into_iter().collect();
        busy.extend(
            seen.iter().filter(|edge| !locked.contains(edge)).flat_map(|(after, run)| [*after, *run]),
        );
    }
    TriedEdges { any: !seen.is_empty(), busy }
}
