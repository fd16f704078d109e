//! `schedule`, `unschedule`, `pause_schedule`, `resume_schedule`, `run_schedule`, `next_times`.

use pgrx::datum::{AnyElement, TimestampWithTimeZone};
use pgrx::prelude::*;

use super::insert::json;
use crate::clock;
use crate::error::{MAX_NAME, Refusal, Result, required, shortened};
use crate::input::{self, Element, Problem, check_name, check_value};
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::Statement;
use crate::pg::throw::notice;
use crate::rights::{self, Doing};
use crate::schedules::{Calendar, New, missing, run_now, set};
use crate::store::schedule;
use crate::wake;
use crate::words::word;

/// The longest name: a run's id adds `@` and a time to it.
const MAX_SCHEDULE_NAME: usize = MAX_NAME - 32;

/// The longest cron expression, in bytes. Each call that finds the schedule due reads it.
const MAX_CRON: usize = 1_000;

/// The greatest `max_backfill`: the latest missed runs are looked for backwards from now, each time anew.
const MAX_BACKFILL: i32 = 1_000;

/// `taskq.schedule(name, cron, task, timezone, overlap, backfill, max_backfill) -> timestamptz`
#[pg_extern(sql = "")]
fn taskq_schedule(
    name: Option<&str>,
    cron: Option<&str>,
    task: Option<AnyElement>,
    timezone: Option<&str>,
    overlap: Option<&str>,
    backfill: Option<&str>,
    max_backfill: Option<i32>,
) -> Option<TimestampWithTimeZone> {
    rights::for_caller(|| schedule(name, cron, task, timezone, overlap, backfill, max_backfill))
}

/// Sets a schedule, or sets one anew. Returns when it runs next; nothing if it is paused.
fn schedule(
    name: Option<&str>,
    cron: Option<&str>,
    task: Option<AnyElement>,
    timezone: Option<&str>,
    overlap: Option<&str>,
    backfill: Option<&str>,
    max_backfill: Option<i32>,
) -> Result<Option<TimestampWithTimeZone>> {
    let name = required("name", name)?;
    if name.is_empty() || name.len() > MAX_SCHEDULE_NAME {
        let hint = format!("Give a name of 1 to {MAX_SCHEDULE_NAME} bytes.");
        return Err(Refusal::not_valid("name", &format!("{} bytes long", name.len()), &hint));
    }
    let cron = required("cron", cron)?;
    let timezone = required("timezone", timezone)?;
    let task = json("task", task)?;
    let overlap = word("overlap", overlap, &["skip", "queue", "replace"])?;
    let backfill = word("backfill", backfill, &["one", "none", "all"])?;
    if let Some(most) = max_backfill.filter(|most| !(1..=MAX_BACKFILL).contains(most)) {
        let hint = format!("Give an integer from 1 to {MAX_BACKFILL}, or NULL for each missed run.");
        return Err(Refusal::out_of_range("max_backfill", &most.to_string(), &hint));
    }
    check_cron(cron)?;
    check_value(|| "the task of the schedule".to_owned(), task.len())?;
    let spec = input::parse_task(&task, "task")?;
    if spec.id.is_some() || spec.not_before.is_some() {
        let problem = Problem::new(
            "the task of a schedule has neither \"id\" nor \"not_before\" nor \"delay\": each run gets its own",
            "Leave these keys out.",
        );
        return Err(Element::Task.malformed(None, None, &problem));
    }
    if spec.unique.is_some() {
        // Inserting it might have to wait for another transaction, and a call that fires a schedule never
        // waits for that.
        let problem = Problem::new(
            "the task of a schedule has no \"unique_by\": each run is by its id, and \"overlap\" says what \
             becomes of it while the one before is under way",
            "Leave this key out.",
        );
        return Err(Element::Task.malformed(None, None, &problem));
    }
    rights::check_actions(Doing::Insert, [spec.action.as_str()])?;
    check_schedule(name)?;
    if let Some(id) = missing(&spec) {
        notice(
            &format!(
                "task \"{}\" does not exist: runs are inserted without this dependency until it does",
                shortened(&id)
            ),
            "The task of the schedule names it in \"depends_on\" or \"to_signal_after\".",
            "If that is a typing error, call schedule again; the column problem of taskq.schedules tells of it after each run.",
        );
    }
    let calendar = calendar(cron, timezone)?;
    let next = set(&New { name, cron, task, overlap, backfill, max_backfill }, &calendar)?;
    Ok(next.and_then(|next| {
        wake::timer(next);
        TimestampWithTimeZone::try_from(next.0).ok()
    }))
}

/// Refuses an expression that is too long.
fn check_cron(cron: &str) -> Result<()> {
    if cron.len() > MAX_CRON {
        let hint =
            format!("Give an expression of at most {MAX_CRON} bytes; ranges and steps say more than lists.");
        return Err(Refusal::not_valid("cron", &format!("{} bytes long", cron.len()), &hint));
    }
    Ok(())
}

fn calendar(cron: &str, timezone: &str) -> Result<Calendar> {
    Calendar::parse(cron, timezone)
        .map_err(|(argument, why)| Refusal::not_valid(argument, &why.what, &why.hint))
}

/// `taskq.next_times(cron, timezone, number) -> SETOF timestamptz`
#[pg_extern(sql = "")]
fn taskq_next_times(
    cron: Option<&str>,
    timezone: Option<&str>,
    number: Option<i32>,
) -> SetOfIterator<'static, TimestampWithTimeZone> {
    SetOfIterator::new(rights::for_caller(|| next_times(cron, timezone, number)))
}

/// When a cron expression is met next, so many times.
fn next_times(
    cron: Option<&str>,
    timezone: Option<&str>,
    number: Option<i32>,
) -> Result<Vec<TimestampWithTimeZone>> {
    let cron = required("cron", cron)?;
    check_cron(cron)?;
    let calendar = calendar(cron, required("timezone", timezone)?)?;
    let number = required("number", number)?;
    if !(1..=MAX_BACKFILL).contains(&number) {
        let hint = format!("Give an integer from 1 to {MAX_BACKFILL}.");
        return Err(Refusal::out_of_range("number", &number.to_string(), &hint));
    }
    let times = std::iter::successors(calendar.after(clock::now()), |time| calendar.after(*time));
    Ok(times
        .take(number as usize)
        .inspect(|_| check_for_interrupts())
        .filter_map(|time| TimestampWithTimeZone::try_from(time.0).ok())
        .collect())
}

/// `taskq.unschedule(name) -> void`
#[pg_extern(sql = "")]
fn taskq_unschedule(name: Option<&str>) {
    rights::for_caller(|| {
        let name = check_name("name", name)?;
        check_schedule(name)?;
        if schedule::REMOVE.execute(name) == 0 {
            return Err(Refusal::no_such("schedule", name));
        }
        Ok(())
    });
}

static KNOWN: Statement<&str, bool> =
    Statement::new(c"SELECT EXISTS (SELECT FROM taskq.schedule s WHERE s.name = $1)");

static ACTION: Statement<&str, Option<String>> = Statement::new(
    c"SELECT s.task OPERATOR(pg_catalog.->>) 'action' FROM taskq.schedule s WHERE s.name = $1",
);

/// Refuses a schedule whose tasks have an action that the caller has nothing to do with.
fn check_schedule(name: &str) -> Result<()> {
    let action: Option<String> = ACTION.first(name).flatten();
    rights::check_actions(Doing::Insert, action.as_deref())
}

/// A schedule that there is.
fn known(name: Option<&str>) -> Result<&str> {
    let name = check_name("name", name)?;
    match KNOWN.first(name) {
        Some(true) => check_schedule(name).map(|()| name),
        _ => Err(Refusal::no_such("schedule", name)),
    }
}

/// Waits for a transaction that is changing the schedule, and returns what it is then.
static IS_PAUSED: Statement<&str, bool> = Statement::new(
    c"SELECT s.paused_next_at IS NOT NULL FROM taskq.schedule s WHERE s.name = $1 FOR NO KEY UPDATE",
);

/// Pauses or resumes a schedule by `change`; whether there was anything to change. One that is as it should be may be about to be
/// changed back, so it is locked before that is said. One that was dropped meanwhile, and perhaps set anew, is looked up again.
fn change(name: Option<&str>, paused: bool, change: impl FnOnce(&str)) -> Result<bool> {
    loop {
        check_for_interrupts();
        let name = known(name)?;
        match IS_PAUSED.first(name) {
            Some(is_paused) if is_paused == paused => return Ok(false),
            Some(_) => {
                change(name);
                return Ok(true);
            }
            None => {}
        }
    }
}

/// `taskq.pause_schedule(name) -> boolean`. Waits for a transaction that inserts a run of it just now; while it is
/// paused none comes but by `run_schedule`.
#[pg_extern(sql = "")]
fn taskq_pause_schedule(name: Option<&str>) -> bool {
    rights::for_caller(|| {
        change(name, true, |name| {
            schedule::PAUSE.execute((name, clock::now()));
        })
    })
}

/// `taskq.resume_schedule(name) -> boolean`. What was missed is due at once, and is inserted as the backfill policy has
/// it.
#[pg_extern(sql = "")]
fn taskq_resume_schedule(name: Option<&str>) -> bool {
    rights::for_caller(|| {
        change(name, false, |name| {
            if let Some(next) = schedule::RESUME.first(name) {
                wake::timer(next);
            }
        })
    })
}

/// `taskq.run_schedule(name) -> text`
#[pg_extern(sql = "")]
fn taskq_run_schedule(name: Option<&str>) -> String {
    rights::for_caller(|| run_now(check_name("name", name)?, clock::now()))
}
