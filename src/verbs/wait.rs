//! `wait_for_task`, and the sleeping part of `own_tasks`.

use std::time::Duration;

use pgrx::datum::Interval;
use pgrx::pg_sys::{INT8OID, TEXTOID};
use pgrx::prelude::*;

use crate::error::{Refusal, Result, or_throw, required};
use crate::pg::clock::{self, Time};
use crate::pg::json::JsonText;
use crate::pg::latch::{self, Channel};
use crate::pg::rows::{Columns, Rows};
use crate::pg::session;
use crate::pg::statement::{Arg, Statement, args};
use crate::pg::throw::notice;
use crate::spec::check_interval;
use crate::state::Outcome;
use crate::store::tables;
use crate::wake::{self, Registration};

/// How long a waiter sleeps at most before it looks again by itself. Needed where no commit callback runs: for
/// COMMIT PREPARED, which a server without prepared transactions does not have, and on a standby.
fn slow_look() -> Duration {
    Duration::from_secs(if session::has_silent_commits() { 5 } else { 30 })
}

/// How soon a waiter looks again at something overdue that another transaction is handling.
const OVERDUE_LOOK: Duration = Duration::from_secs(1);

/// A call that sleeps until something happens or its time is up.
pub(crate) struct Waiter {
    until: Time,
    slept: bool,
}

impl Waiter {
    /// Checks the time-out: it may not be negative. Zero looks once.
    pub(crate) fn new(argument: &str, timeout: Interval) -> Result<Self> {
        check_interval(argument, Some(timeout))?;
        Ok(Waiter { until: clock::wall().plus(timeout), slept: false })
    }

    /// Makes this backend findable, and forgets earlier wake-ups. To be called before looking.
    ///
    /// A client that has vanished is noticed here, since a grant must not go to nobody; not between the look and the
    /// sleep, since the check forgets wake-ups.
    pub(crate) fn register(&mut self, channels: Vec<Channel>) -> Registration {
        latch::check_client();
        let registration = Registration::new(channels);
        latch::reset();
        registration
    }

    /// Forgets earlier wake-ups. To be called before looking again, by whoever is still registered.
    pub(crate) fn look_again(&mut self) {
        latch::check_client();
        latch::reset();
    }

    /// Makes this backend findable under more channels. What has come in since [`Waiter::register`] counts: it
    /// may concern what was looked up in between.
    pub(crate) fn register_too(&mut self, channels: Vec<Channel>) -> Registration {
        Registration::new(channels)
    }

    /// Whether the call has slept.
    pub(crate) fn slept(&self) -> bool {
        self.slept
    }

    /// Sleeps until a wake-up, `due` (by the queue's clock), or a slow look is due; `false` if the time
    /// of the call is up.
    pub(crate) fn sleep(&mut self, due: Option<Time>) -> bool {
        let left = clock::wall().until(self.until);
        if left <= 0 {
            return false;
        }
        if !self.slept && session::in_transaction_block() {
            // The forgotten autocommit of a driver.
            notice(
                "this call sleeps inside a transaction block",
                "Until the transaction ends, what it has changed is not seen by others, and what it has locked is \
                 held up.",
                "Call it as a transaction of its own, with autocommit.",
            );
        }
        self.slept = true;
        // What is overdue already is in somebody else's hands; it is looked at again a little later.
        let due = due.map_or(i64::MAX, |due| clock::now().until(due));
        let due = if due <= 0 { OVERDUE_LOOK.as_micros() as i64 } else { due };
        let micros = left.min(due).min(slow_look().as_micros() as i64);
        // Rounded up, so as not to wake a moment too early and look in vain.
        latch::sleep(Duration::from_millis((micros as u64).div_ceil(1000)));
        true
    }
}

/// The channels on which tasks of these actions are announced.
pub(crate) fn channels_for_work(action_nos: &[i32]) -> Vec<Channel> {
    action_nos.iter().map(|n| wake::ready_channel(*n)).collect()
}

/// The channels on which news come that concern a claim of any action: a new number of an action, a new
/// deadline.
pub(crate) fn channels_for_names() -> Vec<Channel> {
    vec![wake::NEW_ACTION_CHANNEL, wake::TIMER_CHANNEL]
}

/// `taskq.wait_for_task(task_id, timeout) -> TABLE (…)`
#[pg_extern(sql = "")]
fn taskq_wait_for_task(task_id: Option<&str>, timeout: Option<Interval>) -> Rows<End> {
    Rows(or_throw(wait_for_task(task_id, timeout)).into_iter().collect())
}

/// How a task ended.
struct End {
    id: String,
    outcome: Outcome,
    status: Option<String>,
    result: Option<JsonText>,
    settled_at: Time,
}

impl Columns for End {
    fn datums(self) -> Vec<Arg> {
        vec![
            self.id.into_datum(),
            self.outcome.name().into_datum(),
            self.status.into_datum(),
            self.result.into_datum(),
            self.settled_at.into_datum(),
        ]
    }
}

static FIND: Statement = Statement::new(
    c"SELECT t.task_no, t.xmin::pg_catalog.text::pg_catalog.int8 FROM taskq.task t WHERE t.id = $1",
    &[TEXTOID],
);
static LOOK: Statement = Statement::new(
    c"SELECT s.code, s.status, s.result, s.settled_at FROM taskq.settled s WHERE s.task_no = $1",
    &[INT8OID],
);
static EXISTS: Statement = Statement::new(c"SELECT true FROM taskq.task t WHERE t.task_no = $1", &[INT8OID]);

fn wait_for_task(task_id: Option<&str>, timeout: Option<Interval>) -> Result<Option<End>> {
    let id = required("task_id", task_id)?;
    let mut waiter = Waiter::new("timeout", required("timeout", timeout)?)?;
    let (number, inserter): (i64, i64) =
        FIND.first(args![id], |row| (row.need(1), row.need(2))).ok_or_else(|| Refusal::no_such_task(id))?;
    tables::hold();
    loop {
        let registration = waiter.register(vec![wake::settled_channel(number)]);
        if let Some(end) = look(id, number) {
            return Ok(Some(end));
        }
        if EXISTS.first(args![number], |row| row.need::<bool>(1)).is_none() && look(id, number).is_none() {
            return Err(Refusal::deleted_meanwhile(id));
        }
        if !waiter.slept() && session::is_own(inserter) {
            notice(
                "this call waits for a task of its own transaction",
                &format!("Nobody else sees task \"{id}\" before the commit, so nobody can perform it."),
                "Commit first, then wait.",
            );
        }
        if !waiter.sleep(None) {
            return Ok(None);
        }
        drop(registration);
    }
}

fn look(id: &str, number: i64) -> Option<End> {
    LOOK.first(args![number], |row| End {
        id: id.to_owned(),
        outcome: Outcome::from_stored(row.need(1)),
        status: row.get(2),
        result: row.get(3),
        settled_at: row.need(4),
    })
}
