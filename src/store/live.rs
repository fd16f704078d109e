//! Locking and removing the live rows of tasks: those in `run`, `blocked`, `scheduled` and `parked`.
//!
//! **Lock order.** Whoever locks live rows of tasks that its caller named locks them here, all in one go:
//! first `run`, then `blocked`, `scheduled` and `parked`, in each by task number. Signals, claims and upkeep take
//! theirs with SKIP LOCKED and wait for nobody.

use std::collections::HashMap;

use pgrx::pg_sys::INT8ARRAYOID;

use crate::flow::limits;
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Row, Statement, args};
use crate::state::Outcome;
use crate::store::numbers;

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

static CHANGE_RUN: Statement = Statement::new(
    c"SELECT r.task_no, r.tries, r.failures, r.dependencies, r.nonce, r.granted_at, r.actor_id, r.limited,
             r.keyed
        FROM taskq.run r WHERE r.task_no = ANY ($1) ORDER BY r.task_no FOR UPDATE",
    &[INT8ARRAYOID],
);
static CHANGE_BLOCKED: Statement = Statement::new(
    c"SELECT b.task_no, b.tries, b.failures, b.dependencies, b.remaining, b.not_before
        FROM taskq.blocked b WHERE b.task_no = ANY ($1) ORDER BY b.task_no FOR UPDATE",
    &[INT8ARRAYOID],
);
static CHANGE_SCHEDULED: Statement = Statement::new(
    c"SELECT s.task_no, s.tries, s.failures, s.dependencies, s.due
        FROM taskq.scheduled s WHERE s.task_no = ANY ($1) ORDER BY s.task_no FOR UPDATE",
    &[INT8ARRAYOID],
);
static HOLD_RUN: Statement = Statement::new(
    c"SELECT r.task_no, r.tries, r.failures, r.dependencies, r.nonce, r.granted_at, r.actor_id, r.limited,
             r.keyed
        FROM taskq.run r WHERE r.task_no = ANY ($1) ORDER BY r.task_no FOR KEY SHARE",
    &[INT8ARRAYOID],
);
static HOLD_BLOCKED: Statement = Statement::new(
    c"SELECT b.task_no, b.tries, b.failures, b.dependencies, b.remaining, b.not_before
        FROM taskq.blocked b WHERE b.task_no = ANY ($1) ORDER BY b.task_no FOR KEY SHARE",
    &[INT8ARRAYOID],
);
static HOLD_SCHEDULED: Statement = Statement::new(
    c"SELECT s.task_no, s.tries, s.failures, s.dependencies, s.due
        FROM taskq.scheduled s WHERE s.task_no = ANY ($1) ORDER BY s.task_no FOR KEY SHARE",
    &[INT8ARRAYOID],
);
static CHANGE_PARKED: Statement = Statement::new(
    c"SELECT p.task_no, p.tries, p.failures, p.dependencies
        FROM taskq.parked p WHERE p.task_no = ANY ($1) ORDER BY p.task_no FOR UPDATE",
    &[INT8ARRAYOID],
);
static HOLD_PARKED: Statement = Statement::new(
    c"SELECT p.task_no, p.tries, p.failures, p.dependencies
        FROM taskq.parked p WHERE p.task_no = ANY ($1) ORDER BY p.task_no FOR KEY SHARE",
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
pub(crate) fn lock(task_nos: &[i64], firmness: Firmness) -> HashMap<i64, Live> {
    let [run, blocked, scheduled, parked] = match firmness {
        Firmness::Change => [&CHANGE_RUN, &CHANGE_BLOCKED, &CHANGE_SCHEDULED, &CHANGE_PARKED],
        Firmness::Hold => [&HOLD_RUN, &HOLD_BLOCKED, &HOLD_SCHEDULED, &HOLD_PARKED],
    };
    let mut found: HashMap<i64, Live> = HashMap::with_capacity(task_nos.len());
    let mut missing: Vec<i64> = task_nos.to_vec();
    missing.sort_unstable();
    missing.dedup();
    while !missing.is_empty() {
        check_for_interrupts();
        for (statement, read) in [
            (run, in_run as fn(Row) -> Live),
            (blocked, in_blocked as fn(Row) -> Live),
            (scheduled, in_scheduled as fn(Row) -> Live),
            (parked, in_parked as fn(Row) -> Live),
        ] {
            if !missing.is_empty() {
                found.extend(statement.query(args![missing.as_slice()], |row| {
                    let live = read(row);
                    (live.task_no, live)
                }));
                missing.retain(|task_no| !found.contains_key(task_no));
            }
        }
        if !missing.is_empty() {
            missing = UNSETTLED.query(args![missing.as_slice()], |row| row.need(1));
        }
    }
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
        if ended.len() == rest.len() {
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
    limits::release(&seated);
}

static SETTLED: Statement = Statement::new(
    c"SELECT s.task_no, s.code FROM taskq.settled s WHERE s.task_no = ANY ($1)",
    &[INT8ARRAYOID],
);

static CHANGE_SETTLED: Statement = Statement::new(
    c"SELECT s.task_no, s.code FROM taskq.settled s WHERE s.task_no = ANY ($1) ORDER BY s.task_no FOR UPDATE",
    &[INT8ARRAYOID],
);
static HOLD_SETTLED: Statement = Statement::new(
    c"SELECT s.task_no, s.code FROM taskq.settled s WHERE s.task_no = ANY ($1) ORDER BY s.task_no FOR KEY SHARE",
    &[INT8ARRAYOID],
);

/// How those of the tasks that are settled ended; they are not removed before this transaction ends, so
/// that an edge to one of them cannot be left behind by its removal. Waits for one that is being removed.
fn hold_outcomes(task_nos: &[i64], firmness: Firmness) -> HashMap<i64, Outcome> {
    let statement = if firmness == Firmness::Hold { &HOLD_SETTLED } else { &CHANGE_SETTLED };
    statement
        .query(args![task_nos], |row| (row.need(1), Outcome::from_stored(row.need(2))))
        .into_iter()
        .collect()
}

/// How those of the tasks that are settled ended.
pub(crate) fn outcomes(task_nos: &[i64]) -> HashMap<i64, Outcome> {
    SETTLED
        .query(args![task_nos], |row| (row.need(1), Outcome::from_stored(row.need(2))))
        .into_iter()
        .collect()
}
