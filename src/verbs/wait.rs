//! `wait_for_task`, and the sleeping part of `own_tasks`.

use std::time::{Duration, Instant};

use pgrx::datum::Interval;
use pgrx::prelude::*;

use super::pace::{self, Pace, Quiet, staggered};
use crate::background;
use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::number::TaskNo;
use crate::pg::arg::Arg;
use crate::pg::block;
use crate::pg::clock::{Time, wall};
use crate::pg::json::JsonText;
use crate::pg::latch::{self, Channel};
use crate::pg::rows::{Columns, Rows};
use crate::pg::session;
use crate::pg::statement::Statement;
use crate::pg::subtransaction;
use crate::pg::throw::notice;
use crate::pg::wait_event::Sleep;
use crate::rights::{self, Doing};
use crate::spec::check_interval;
use crate::state::Outcome;
use crate::store::{known_actions, tables};
use crate::upkeep;
use crate::wake::{self, Registration};

/// How soon a waiter looks again at something overdue that another transaction is handling.
const OVERDUE_LOOK: Duration = Duration::from_secs(1);

/// A call that sleeps until something happens or its time is up.
///
/// It goes by the clock that nobody sets: a server's clock that goes back makes no sleep longer.
pub(crate) struct Waiter {
    /// `None`: for ever.
    until: Option<Instant>,
    slept: bool,
    /// A wake-up has ended the last sleep, and nothing has come of it yet.
    woken: bool,
    /// When the last wake-up came; at first, when the call began.
    news: Instant,
    /// The last look has left signals uncounted.
    left_signals: bool,
    pace: Pace,
    quiet: Quiet,
    /// The subtransaction that the call is in, whatever it begins for its looks.
    level: i32,
    /// The actions, of a call that waits for work; and the channels on which all news come that concern them.
    names: Option<(Vec<String>, Registration)>,
    registered: Option<Registration>,
    in_vain: Option<Registration>,
}

impl Waiter {
    /// Checks the time-out: it may not be negative. Zero looks once.
    pub(crate) fn new(argument: &str, timeout: Interval) -> Result<Self> {
        check_interval(argument, Some(timeout))?;
        let now = wall();
        Ok(Waiter {
            until: Instant::now().checked_add(now.until(now.plus(timeout))),
            slept: false,
            woken: false,
            news: Instant::now(),
            left_signals: false,
            pace: Pace::of_session(),
            quiet: Quiet::default(),
            level: latch::nest_level(),
            names: None,
            registered: None,
            in_vain: None,
        })
    }

    /// One that waits for work, and is found when there are news of it from now on.
    pub(crate) fn for_work(argument: &str, timeout: Interval, names: &[String]) -> Result<Self> {
        let mut waiter = Waiter::new(argument, timeout)?;
        waiter.pace = pace::resume(names);
        let registration = Registration::new(wake::channels_for_names(names), waiter.level);
        waiter.names = Some((names.to_vec(), registration));
        Ok(waiter)
    }

    /// Forgets earlier wake-ups. To be called before looking, by whoever is registered; what a look finds out about where
    /// else to be registered comes before what it looks for.
    ///
    /// A client that has vanished is noticed here, since a grant must not go to nobody; not between the look and the
    /// sleep, since the check forgets wake-ups.
    ///
    /// A wake-up that is forgotten here counts as one that ended a sleep: it may have been meant for somebody else (see
    /// [`wake::pass_on`]), who goes on sleeping if this look comes to nothing.
    pub(crate) fn before_look(&mut self) {
        self.woken |= latch::is_set();
        latch::check_client();
        self.woken |= latch::is_set();
        if self.woken {
            self.news = Instant::now();
        }
        latch::reset();
        self.quiet = Quiet::before_look();
        wake::begin_look();
    }

    /// Makes this backend findable under these channels, in the place of those before. What has come in since
    /// [`Waiter::before_look`] counts: it may concern what was looked up in between.
    pub(crate) fn register(&mut self, channels: Vec<Channel>) {
        let channels = if self.names.is_some() { channels } else { wake::channels_for_tasks(channels) };
        if self.registered.as_ref().is_none_or(|registered| registered.channels() != channels) {
            // First the new ones: in between somebody may be looking for us.
            let registered = Registration::new(channels, self.level);
            self.registered = Some(registered);
        }
    }

    /// Notes that a look has done something in vain, and undone it. Who ends what keeps it back finds this call from now on.
    pub(crate) fn was_in_vain(&mut self) {
        if self.in_vain.is_none() {
            self.in_vain = Some(Registration::in_vain(self.level));
        }
    }

    /// Notes that a look has left signals uncounted.
    pub(crate) fn leaves_signals(&mut self) {
        self.left_signals = true;
    }

    /// When something was told to this call, as late as it may have come.
    pub(crate) fn news(&self) -> Instant {
        self.news
    }

    /// When the time of the call is up; `None`: never.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether it is.
    pub(crate) fn time_is_up(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Whether the call has slept.
    pub(crate) fn slept(&self) -> bool {
        self.slept
    }

    /// Sleeps until a wake-up, until `due` (by the queue's clock), or until it is time to look again; `false` if the
    /// time of the call is up. `owed`: the look has left something that is due, or undoes what it did of it. That is for a
    /// process that commits; what waits for tasks asks here whether there is such a thing, since its look does not.
    pub(crate) fn sleep(&mut self, due: Option<Time>, owed: bool) -> bool {
        let passed_over = wake::end_look();
        let left_signals = std::mem::take(&mut self.left_signals);
        if std::mem::take(&mut self.woken) {
            wake::pass_on();
            if left_signals {
                wake::pass_on_signals();
            }
        }
        let (owed, due) = match self.names {
            _ if self.time_is_up() => return false,
            Some(_) => (owed, due),
            None => upkeep::owed(),
        };
        let called = owed.then(background::call);
        let again = called.as_ref().and_then(|called| called.look_again).unwrap_or(Duration::MAX);
        loop {
            let left =
                self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            if !self.slept && block::in_transaction_block() {
                // The forgotten autocommit of a driver.
                notice(
                    "this call sleeps inside a transaction block",
                    "Until the transaction ends, what it has changed is not seen by others, and what it has locked is \
                     held up.",
                    "Call it as a transaction of its own, with autocommit.",
                );
            }
            self.slept = true;
            let pace = staggered(self.pace.next(passed_over));
            let time = pace.min(left).min(due.map_or(Duration::MAX, time_until)).min(again);
            let soon = (self.names.is_some() && time <= wake::SOON).then(Registration::soon);
            let why = if self.names.is_some() { Sleep::ForWork } else { Sleep::ForTasks };
            self.woken = latch::sleep(time, why);
            drop(soon);
            known_actions::forget();
            if self.woken {
                self.pace.woken();
            }
            if self.woken || time != pace || passed_over {
                return true;
            }
            // This forgets a wake-up. But then the id that its sender has committed with is seen now, or it was for
            // something that the last look has seen, and would have been passed on if that was for others.
            self.woken = latch::is_set();
            latch::check_client();
            if self.woken || !self.quiet.still() {
                return true;
            }
            self.pace.left_out();
        }
    }

    /// Gives up all registrations, as the call ends: with nothing, or with what it waited for.
    pub(crate) fn leave(&mut self, empty: bool) {
        wake::end_look();
        (self.registered, self.in_vain) = (None, None);
        if let Some((names, registration)) = self.names.take() {
            drop(registration);
            if empty {
                pace::remember(&names, self.pace);
            }
        }
    }
}

/// How long to sleep for what is due then. What is overdue already is in somebody else's hands; it is looked at again a
/// little later.
fn time_until(due: Time) -> Duration {
    match clock::now().until(due) {
        Duration::ZERO => OVERDUE_LOOK,
        ahead => ahead,
    }
}

/// `taskq.wait_for_task(task_id, timeout) -> TABLE (…)`
#[pg_extern(sql = "")]
fn taskq_wait_for_task(task_id: Option<&str>, timeout: Option<Interval>) -> Rows<End> {
    Rows(rights::for_caller(|| wait_for_task(task_id, timeout)).into_iter().collect())
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
            Arg::new(self.id),
            Arg::new(self.outcome.name()),
            Arg::new(self.status),
            Arg::new(self.result),
            Arg::new(self.settled_at),
        ]
    }
}

static FIND: Statement<&str, (TaskNo, i64)> = Statement::new(
    c"SELECT t.task_no, t.xmin::pg_catalog.text::pg_catalog.int8 FROM taskq.task t WHERE t.id = $1",
);
static LOOK: Statement<TaskNo, (i8, Option<String>, Option<JsonText>, Time)> = Statement::new(
    c"SELECT s.code, s.status, s.result, s.settled_at FROM taskq.settled s WHERE s.task_no = $1",
);
static EXISTS: Statement<TaskNo, bool> =
    Statement::new(c"SELECT true FROM taskq.task t WHERE t.task_no = $1");

fn wait_for_task(task_id: Option<&str>, timeout: Option<Interval>) -> Result<Option<End>> {
    let id = required("task_id", task_id)?;
    let mut waiter = Waiter::new("timeout", required("timeout", timeout)?)?;
    let (number, inserter): (TaskNo, i64) =
        subtransaction::keeping_no_locks(|| FIND.first(id)).ok_or_else(|| Refusal::no_such_task(id))?;
    subtransaction::keeping_no_locks(|| rights::check_tasks(Doing::Look, [number]))?;
    waiter.register(vec![wake::settled_channel(number)]);
    loop {
        waiter.before_look();
        let (end, exists) = subtransaction::keeping_no_locks(|| {
            tables::hold();
            let end = look(id, number);
            let exists = end.is_some() || EXISTS.first(number).is_some();
            // It may have been settled and removed in between.
            if exists { (end, true) } else { (look(id, number), false) }
        });
        if end.is_some() {
            return Ok(end);
        }
        if !exists {
            return Err(Refusal::deleted_meanwhile(id));
        }
        if !waiter.slept() && session::is_own(inserter) {
            notice(
                "this call waits for a task of its own transaction",
                &format!("Nobody else sees task \"{id}\" before the commit, so nobody can perform it."),
                "Commit first, then wait.",
            );
        }
        if !waiter.sleep(None, false) {
            return Ok(None);
        }
    }
}

fn look(id: &str, number: TaskNo) -> Option<End> {
    LOOK.first(number).map(|(code, status, result, settled_at)| End {
        id: id.to_owned(),
        outcome: Outcome::from_stored(code),
        status,
        result,
        settled_at,
    })
}
