//! The sleeping part of calls that wait.

use std::time::{Duration, Instant};

use pgrx::datum::Interval;

use super::pace::{self, Pace, Quiet, staggered};
use crate::background;
use crate::clock;
use crate::error::Result;
use crate::input::check_interval;
use crate::memory::{self, Event};
use crate::pg::block;
use crate::pg::clock::{Time, wall};
use crate::pg::latch::{self, Channel};
use crate::pg::throw::notice;
use crate::pg::wait_event::Sleep;
use crate::upkeep::Next;
use crate::wake::{self, Registration, Stop};

/// How soon a waiter looks again at something that has become overdue.
const OVERDUE_LOOK: Duration = Duration::from_secs(1);

/// A call that sleeps until something happens or its time is up.
///
/// Its time-out and its pace go by the monotonic clock: they do not get longer where the server's clock is put back.
pub(crate) struct Waiter {
    /// `None`: for ever.
    until: Option<Instant>,
    slept: bool,
    /// A wake-up has ended the last sleep, and nothing has come of it yet.
    woken: bool,
    /// It has been woken, or has slept: it may be the one to know what is due next.
    heard: bool,
    pace: Pace,
    quiet: Quiet,
    /// The subtransaction that the call is in, whatever it begins for its looks.
    level: i32,
    /// The actions, of a call that waits for work; and the channels on which it is woken whatever the numbers of these are.
    names: Option<(Vec<String>, Registration)>,
    registered: Option<Registration>,
    /// What another session may stop it by, of a call that waits for work.
    stop: Option<Stop>,
}

impl Waiter {
    /// Checks the time-out: it may not be negative. Zero looks once.
    pub(crate) fn new(argument: &str, timeout: Interval) -> Result<Self> {
        check_interval(argument, Some(timeout))?;
        background::begin_call();
        let now = wall().by_queue();
        Ok(Waiter {
            until: Instant::now().checked_add(now.until(now.plus(timeout))),
            slept: false,
            woken: false,
            heard: false,
            pace: Pace::of_session(),
            quiet: Quiet::default(),
            level: latch::nest_level(),
            names: None,
            registered: None,
            stop: None,
        })
    }

    /// One that waits for work, and is found from now on when something changes for it.
    pub(crate) fn for_work(argument: &str, timeout: Interval, names: &[String], stop: Stop) -> Result<Self> {
        let mut waiter = Waiter::new(argument, timeout)?;
        waiter.pace = pace::resume(names);
        let registration = Registration::new(wake::channels_for_names(names), waiter.level);
        waiter.names = Some((names.to_vec(), registration));
        waiter.stop = Some(stop);
        Ok(waiter)
    }

    /// Forgets earlier wake-ups. To be called before a look, by a call that is registered. Within a look, what
    /// finds out where else to register comes before what it searches for.
    ///
    /// A client that has vanished is noticed here, so that no grant is made to it; not between the look and the sleep,
    /// since the check forgets wake-ups.
    ///
    /// A wake-up that is forgotten here counts as one that ended a sleep, and is passed on if this look finds nothing: it may have been
    /// meant for another waiting call (see [`wake::pass_on`]).
    pub(crate) fn before_look(&mut self) {
        self.woken |= latch::is_set();
        latch::check_client();
        self.woken |= latch::is_set();
        self.heard |= self.woken;
        latch::reset();
        self.quiet = Quiet::before_look();
        wake::begin_look();
    }

    /// Makes this backend findable under these channels, in the place of those before. What has come in since
    /// [`Waiter::before_look`] counts: it may concern what was looked up in between.
    pub(crate) fn register(&mut self, channels: Vec<Channel>) {
        let channels = if self.names.is_some() { channels } else { wake::channels_for_tasks(channels) };
        if self.registered.as_ref().is_none_or(|registered| registered.channels() != channels) {
            // First the new ones: in between a committer may search for this call.
            let registered = Registration::new(channels, self.level);
            self.registered = Some(registered);
        }
    }

    /// Whether the time of the call is up.
    pub(crate) fn time_is_up(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Whether the call has slept.
    pub(crate) fn slept(&self) -> bool {
        self.slept
    }

    /// Whether another session has stopped the call: it comes back with nothing.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::is_stopped)
    }

    /// Whether others may rely on what it knows of what is due next.
    pub(crate) fn has_heard(&self) -> bool {
        self.heard
    }

    /// Sleeps until a wake-up, until something is due, or until it is time to look again; `false` if the time of the call is up, or
    /// another session has stopped it. What is owed a process is called for.
    pub(crate) fn sleep(&mut self, next: Next) -> bool {
        let passed_over = wake::end_look();
        if std::mem::take(&mut self.woken) {
            wake::pass_on();
        }
        if self.time_is_up() {
            return false;
        }
        let called = background::call_if(next.owed);
        let again = called.again.map(|soon| Instant::now() + soon.max(next.rest));
        let due = next.due.into_iter().chain(next.shared.map(background::when_to_look)).min();
        loop {
            let left =
                self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() || self.stop.as_mut().is_some_and(|stop| stop.is_marked(self.level)) {
                return false;
            }
            if !self.slept && block::begun_by_caller() {
                // This is most often the forgotten autocommit of a driver.
                notice(
                    "this call sleeps inside a transaction block",
                    "Until the transaction ends, what it has changed is not seen by others, and what it has locked is \
                     held up.",
                    "Call it as a transaction of its own, with autocommit.",
                );
            }
            (self.slept, self.heard) = (true, true);
            let pace = staggered(self.pace.next(passed_over)).max(next.rest);
            let again = again.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            let time = pace.min(left).min(due.map_or(Duration::MAX, time_until)).min(again);
            let soon = (self.names.is_some() && time <= wake::LOOKS_SOON).then(Registration::soon);
            let why = if self.names.is_some() { Sleep::ForWork } else { Sleep::ForTasks };
            self.woken = latch::sleep(time, why);
            drop(soon);
            memory::happened(Event::LookAgain);
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
        self.registered = None;
        if let Some(stop) = self.stop.take() {
            stop.leave(self.level);
        }
        if let Some((names, registration)) = self.names.take() {
            drop(registration);
            if empty {
                pace::remember(&names, self.pace);
            }
        }
    }
}

/// How long to sleep for what is due then. A look names only what was not due yet. What is overdue by now has become so since the look;
/// for that the sleep is one second at most.
fn time_until(due: Time) -> Duration {
    match clock::now().until(due) {
        Duration::ZERO => OVERDUE_LOOK,
        ahead => ahead,
    }
}
