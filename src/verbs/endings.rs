//! `endings`: what has settled, in an order to which nothing is added before what was read.
//!
//! A cursor is the place of a row in the index of `settled`: when the task settled, and its number.
//!
//! **What may be read.** Nothing settles before the *bound* any more, or is settled there and not visible. The bound is made in three
//! steps, in this order: read the clock; list the transactions of this database that have an id, with the times at which they
//! began; look with a new snapshot. A transaction that settles has its id before it reads the clock
//! ([`settling`](crate::store::ends::settling)). So one that has no id yet when the list is made settles after the first step. One that
//! is in the list settles no earlier than it began. One that has ended before the list was made is seen by the snapshot. The bound
//! is the earliest of these times.
//!
//! Of a prepared transaction, and of a session without `track_activities`, no such time is known, and a standby lists none of the
//! primary's transactions. Then the mark that sealing keeps ([`seal`](crate::store::seal)) is the bound, if the snapshot has
//! reached it, else the time up to which all is sealed.

use pgrx::prelude::*;

use super::args::check_actions;
use crate::error::{Refusal, Result, shortened};
use crate::guc;
use crate::number::TaskNo;
use crate::pg::arg::Arg;
use crate::pg::clock::{self, Time, Wall};
use crate::pg::json::JsonText;
use crate::pg::rows::{Columns, Rows};
use crate::pg::session::in_recovery;
use crate::pg::statement::{Statement, record};
use crate::rights::{self, Doing};
use crate::state::{Cause, Outcome};
use crate::store::seal;

/// `taskq.endings(after, max_tasks, actions) -> TABLE (…)`
#[pg_extern(sql = "")]
fn taskq_endings(
    after: Option<&str>,
    max_tasks: Option<i32>,
    actions: Option<Vec<Option<String>>>,
) -> Rows<Ended> {
    Rows(rights::for_caller(|| endings(after, max_tasks, actions)))
}

fn endings(
    after: Option<&str>,
    max_tasks: Option<i32>,
    actions: Option<Vec<Option<String>>>,
) -> Result<Vec<Ended>> {
    let most = max_tasks.unwrap_or(DEFAULT_TASKS);
    if most < 1 {
        return Err(Refusal::not_valid("max_tasks", &most.to_string(), "Ask for one task or more."));
    }
    let actions = rights::only_allowed(Doing::Look, actions.map(check_actions).transpose()?)?;
    let after = match after {
        Some(NOW) => return Ok(vec![Ended::nothing(Cursor { settled_at: bound(), task_no: TaskNo(0) })]),
        Some(text) => Cursor::read(text).ok_or_else(|| malformed(text))?,
        None => Cursor { settled_at: Time::BEGINNING, task_no: TaskNo(0) },
    };
    let bound = bound();
    let names: Option<Vec<&str>> = actions.as_ref().map(|names| names.iter().map(String::as_str).collect());
    Ok(ENDED
        .query((after.settled_at, after.task_no, bound, names.as_deref(), most))
        .into_iter()
        .map(Ended::from)
        .collect())
}

/// How many tasks a call returns that does not say.
const DEFAULT_TASKS: i32 = 1000;
/// The cursor behind which all comes that has not committed yet.
const NOW: &str = "now";

/// The place of a row.
struct Cursor {
    settled_at: Time,
    task_no: TaskNo,
}

impl Cursor {
    /// As callers see it. It means nothing to them.
    fn text(&self) -> String {
        format!("{}.{}", self.settled_at.to_micros(), self.task_no.0)
    }

    fn read(text: &str) -> Option<Self> {
        let (time, number) = text.split_once('.')?;
        Some(Cursor {
            settled_at: Time::from_micros(time.parse().ok()?),
            task_no: TaskNo(number.parse().ok()?),
        })
    }
}

fn malformed(text: &str) -> Refusal {
    Refusal::not_valid(
        "after",
        &format!("\"{}\"", shortened(text)),
        "Give a cursor of an earlier call, 'now', or NULL for all that is kept.",
    )
}

/// Before which nothing settles any more; see the head of this file.
fn bound() -> Time {
    // A clock that a test has set says nothing of transactions.
    if guc::fake_now().is_some() {
        return Time::INFINITY;
    }
    let now = clock::wall();
    FORGET_LIST.execute(());
    let running = (!in_recovery()).then(|| RUNNING.first(())).flatten();
    match running {
        Some(Running { is_known: true, began }) => began.map_or(now, |began| began.min(now)).by_queue(),
        _ => seal::reached().by_queue(),
    }
}

record! {
    /// What is known of the transactions under way that have an id.
    struct Running {
        /// Of each of them the time at which it began.
        is_known: bool,
        /// The earliest of these times; NULL: there are none.
        began: Option<Wall>,
    }
}

/// What this session has read of the sessions is kept by the server until the end of the transaction.
static FORGET_LIST: Statement<()> = Statement::new(c"SELECT pg_catalog.pg_stat_clear_snapshot()");
static RUNNING: Statement<(), Running> = Statement::new(
    c"SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts AS p WHERE p.database = pg_catalog.current_database())
             AND COALESCE(pg_catalog.bool_and(a.xact_start IS NOT NULL), true),
             pg_catalog.min(a.xact_start)
        FROM pg_catalog.pg_stat_activity AS a
       WHERE a.datname = pg_catalog.current_database() AND a.backend_xid IS NOT NULL",
);

record! {
    /// A row of [`ENDED`].
    struct Row {
        settled_at: Time,
        task_no: TaskNo,
        id: String,
        action: String,
        group_id: Option<String>,
        code: i8,
        cause: i8,
        status: Option<String>,
        result: Option<JsonText>,
        tries: i32,
    }
}

/// The next rows behind a place and before the bound, of these actions.
static ENDED: Statement<(Time, TaskNo, Time, &[&str], i32), Row> = Statement::new(
    c"SELECT s.settled_at, s.task_no, t.id, a.name, t.group_id, s.code, s.cause, s.status, s.result, s.tries
        FROM taskq.settled s
       CROSS JOIN LATERAL (SELECT t.id, t.group_id FROM taskq.task t WHERE t.task_no = s.task_no OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action a WHERE a.action_no = s.action_no OFFSET 0) AS a
       WHERE (s.settled_at, s.task_no) > ($1, $2) AND s.settled_at < $3
         AND ($4 IS NULL OR a.name = ANY ($4)) AND s.cause <> 'r'
       ORDER BY s.settled_at, s.task_no LIMIT $5",
);

/// A row of the result.
struct Ended {
    cursor: Cursor,
    /// None: there is only the cursor.
    task: Option<Row>,
}

impl Ended {
    fn nothing(cursor: Cursor) -> Self {
        Ended { cursor, task: None }
    }
}

impl From<Row> for Ended {
    fn from(row: Row) -> Self {
        Ended { cursor: Cursor { settled_at: row.settled_at, task_no: row.task_no }, task: Some(row) }
    }
}

impl Columns for Ended {
    fn datums(self) -> Vec<Arg> {
        let cursor = self.cursor.text();
        let task = self.task.as_ref();
        let outcome = task.map(|task| Outcome::from_stored(task.code));
        let cause = task.filter(|_| outcome.is_some_and(Outcome::is_abort));
        let (status, result) =
            (task.and_then(|task| task.status.clone()), task.and_then(|task| task.result.clone()));
        vec![
            Arg::new(cursor),
            Arg::new(task.map(|task| task.id.clone())),
            Arg::new(task.map(|task| task.action.clone())),
            Arg::new(task.and_then(|task| task.group_id.clone())),
            Arg::new(outcome.map(Outcome::name)),
            Arg::new(cause.and_then(|task| Cause::from_stored(task.cause as u8)).map(Cause::name)),
            Arg::new(status),
            Arg::new(result),
            Arg::new(task.map(|task| task.tries)),
            Arg::new(task.map(|task| task.settled_at)),
        ]
    }
}
