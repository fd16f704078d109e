//! Settings of the extension.

use std::ffi::CString;
use std::time::Duration;

use pgrx::datum::Interval;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

use crate::error::sentence;
use crate::input::backoff::Backoff;
use crate::input::interval_problem;
use crate::memory::{Belief, Latest, Memory};
use crate::pg::settings::{self, Check};
use crate::pg::{clock, process, session};
use crate::state::Outcome;

/// `taskq.retention`: how long settled tasks are kept, unless the task or its action says otherwise, in seconds; -1 for ever. 7
/// days by default. Not for any user to set: the session that settles a task decides, and a call settles tasks of others, too:
/// dependents, and those whose deadlines have passed. docs/reference gives the same number.
static RETENTION: GucSetting<i32> = GucSetting::<i32>::new(7 * 24 * 60 * 60);

/// `taskq.retention_aborted`: the same for tasks that have aborted; -2, the default, means `taskq.retention`.
static RETENTION_ABORTED: GucSetting<i32> = GucSetting::<i32>::new(-2);

/// `taskq.max_tries`: how often a task is tried, unless the task or its action says otherwise; -1 for no limit. Not for any user
/// to set, as with retention: the session that ends a try decides, and a call ends tries of others whose deadlines have passed.
/// docs/reference gives the same number.
static MAX_TRIES: GucSetting<i32> = GucSetting::<i32>::new(25);

/// `taskq.backoff`: how long a task that is given back waits for its next try, unless the task or its action says
/// otherwise, as the key `backoff` in JSON; empty for not at all. Any user may set it: it is for tasks that the session itself
/// gives back, which could name the delay. docs/reference gives the same value.
static BACKOFF: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(
    c"{\"kind\": \"exponential\", \"initial\": \"1 second\", \"max\": \"10 minutes\", \"jitter\": 0.1}",
));

/// `taskq.lease`: how long a grant lasts, unless the call, the task or its action says otherwise; empty for ever. An hour
/// by default: what a worker that died had is another's then, and what takes longer is extended. docs/reference gives the same
/// value. Any user may set it: it is for what the session itself is granted, and the call could say it.
static LEASE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"1 hour"));

/// The interval that `taskq.lease` was read as last, and from which text.
static READ_DURATION: Memory<Latest<CString, Option<Interval>>> = Memory::of(Belief::Lease);

/// `taskq.now`: a timestamp that replaces the queue's clock in this session; for tests. Not for any user to set:
/// it decides which tasks of other workers the session may take.
static NOW: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

/// `taskq.databases`: the databases, separated by commas, that have a worker which stays where the library is preloaded.
static DATABASES: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// `taskq.background_worker`: whether the worker of a database does anything, and whether calls start one.
static BACKGROUND_WORKER: GucSetting<bool> = GucSetting::<bool>::new(true);

/// `taskq.maintenance_interval`: how long the background worker sleeps at most, in milliseconds.
static MAINTENANCE_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(60_000);

/// `taskq.shortest_sleep`: how soon a sleeping call looks again unwoken for the first time, in milliseconds.
static SHORTEST_SLEEP: GucSetting<i32> = GucSetting::<i32>::new(100);

/// Declares the settings; called once, when the library is loaded.
pub(crate) fn init() {
    define_for_tasks();
    define_for_the_queue();
    // From PostgreSQL 15 on a misspelt setting is an error.
    session::reserve_settings(c"taskq");
}

/// What holds of a task unless it or its action says otherwise, or for a lease the call.
fn define_for_tasks() {
    GucRegistry::define_int_guc(
        c"taskq.retention",
        c"How long settled tasks are kept, unless the task or its action says otherwise.",
        c"-1 keeps them for ever.",
        &RETENTION,
        -1,
        i32::MAX,
        GucContext::Suset,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"taskq.retention_aborted",
        c"How long aborted tasks are kept, unless the task or its action says otherwise.",
        c"-2 keeps them as long as completed ones, -1 for ever.",
        &RETENTION_ABORTED,
        -2,
        i32::MAX,
        GucContext::Suset,
        GucFlags::UNIT_S,
    );
    settings::define_count_but_zero(
        c"taskq.max_tries",
        c"How often a task is tried, unless the task or its action says otherwise.",
        c"-1 sets no limit.",
        &MAX_TRIES,
        -1,
    );
    settings::define_text::<BackoffText>(
        c"taskq.backoff",
        c"How long a task that is given back waits for its next try, unless the task or its action says otherwise.",
        c"A JSON object with kind, initial, max and jitter; empty: it does not wait.",
        &BACKOFF,
    );
    settings::define_text::<DurationText>(
        c"taskq.lease",
        c"How long an actor may hold a task, unless the call, the task or its action says otherwise.",
        c"An interval; empty: for ever.",
        &LEASE,
    );
}

fn define_for_the_queue() {
    GucRegistry::define_string_guc(
        c"taskq.databases",
        c"The databases that have a background worker which stays, if the library is preloaded.",
        c"Names, separated by commas. Read when the server starts.",
        &DATABASES,
        // Where the library is not preloaded Postgres defines no setting of that kind, and this one means nothing.
        if process::is_preloading() { GucContext::Postmaster } else { GucContext::Sighup },
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"taskq.background_worker",
        c"Whether a background worker does what is due.",
        c"Calls that sleep, or claim in a transaction block, start it. It stays in a database that taskq.databases names.",
        &BACKGROUND_WORKER,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"taskq.maintenance_interval",
        c"How long the background worker sleeps at most.",
        c"It wakes up earlier for what is due, but removes expired tasks at this pace.",
        &MAINTENANCE_INTERVAL,
        1_000,
        24 * 60 * 60 * 1_000,
        GucContext::Suset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_string_guc(
        c"taskq.now",
        c"Replaces the clock of the queue in this session; for tests.",
        c"A timestamp; empty for the real clock.",
        &NOW,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"taskq.shortest_sleep",
        c"How soon after a look a sleeping call looks again without being woken.",
        c"The sleeps that follow are longer and longer. Wake-ups do not depend on it.",
        &SHORTEST_SLEEP,
        10,
        30_000,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
}

/// How long a task which ended like this is kept by default; `None` for ever.
pub(crate) fn retention(outcome: Outcome) -> Option<Duration> {
    let seconds = match (outcome, RETENTION_ABORTED.get()) {
        (Outcome::Completed, _) | (_, -2) => RETENTION.get(),
        (Outcome::Aborted | Outcome::Skipped, seconds) => seconds,
    };
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// What `taskq.backoff` may be.
struct BackoffText;

impl Check for BackoffText {
    fn check(text: &str) -> Result<(), String> {
        if text.trim().is_empty() {
            Ok(())
        } else {
            Backoff::parse(text).map(drop).map_err(|problem| sentence(&problem.what))
        }
    }

    const HINT: &'static str = "Give {\"kind\": \"fixed\" or \"exponential\", \"initial\", \"max\", \"jitter\"}, \
                                or an empty string for no delay.";
}

/// What `taskq.lease` may be.
struct DurationText;

impl Check for DurationText {
    fn check(text: &str) -> Result<(), String> {
        if text.trim().is_empty() {
            return Ok(());
        }
        match clock::parse_interval(text).map(interval_problem) {
            None => Err("It is not an interval.".to_owned()),
            Some(Some(problem)) => Err(format!("It is {problem}.")),
            Some(None) => Ok(()),
        }
    }

    const HINT: &'static str = "Give an interval from 0 to 1,000 years, or an empty string for none.";
}

/// How often a task is tried, where neither it nor its action says; `None` for no limit.
pub(crate) fn max_tries() -> Option<i32> {
    Some(MAX_TRIES.get()).filter(|tries| *tries > 0)
}

/// The delays between the tries of a task, where neither it nor its action says.
pub(crate) fn backoff() -> Option<Backoff> {
    let text = BACKOFF.get()?.into_string().ok().filter(|text| !text.trim().is_empty())?;
    // The hook has parsed the same text.
    Backoff::parse(&text).ok()
}

/// How long a grant lasts, where neither the call nor the task nor its action says.
pub(crate) fn lease() -> Option<Interval> {
    let text = LEASE.get()?;
    READ_DURATION.with(|read| {
        read.get(&text).copied().unwrap_or_else(|| {
            let said = text.to_str().ok().filter(|text| !text.trim().is_empty());
            let interval = said.and_then(clock::parse_interval);
            read.note(text, interval);
            interval
        })
    })
}

/// The names of the databases that are to have a worker which stays.
pub(crate) fn databases() -> Vec<String> {
    names_in(&DATABASES.get().and_then(|text| text.into_string().ok()).unwrap_or_default())
}

/// The names that a text has, separated by commas, each once.
fn names_in(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether databases get a background worker.
pub(crate) fn background_worker() -> bool {
    BACKGROUND_WORKER.get()
}

/// How long the background worker sleeps at most.
pub(crate) fn maintenance_interval() -> Duration {
    Duration::from_millis(MAINTENANCE_INTERVAL.get().unsigned_abs().into())
}

/// How soon a sleeping call looks again unwoken for the first time.
pub(crate) fn shortest_sleep() -> Duration {
    Duration::from_millis(SHORTEST_SLEEP.get().unsigned_abs().into())
}

/// The time that `taskq.now` replaces the clock with, if it does.
pub(crate) fn fake_now() -> Option<String> {
    let text = NOW.get()?.into_string().ok()?;
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_databases_are_as_they_stand_but_for_spaces_around_them() {
        assert_eq!(names_in(" shop ,, My Queue,shop, "), ["My Queue", "shop"]);
        assert_eq!(names_in(""), [""; 0]);
    }
}
