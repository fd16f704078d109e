//! Setting a schedule, or setting one anew.

use super::cron::Calendar;
use super::fire::catch_up;
use crate::clock;
use crate::error::{Refusal, Result, shortened};
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::session::check_for_interrupts;
use crate::store::schedule::{self, Before};

/// What a schedule is to be.
pub(crate) struct New<'a> {
    /// The name of the schedule.
    pub(crate) name: &'a str,
    /// The cron expression, as it was given.
    pub(crate) cron: &'a str,
    /// JSON text.
    pub(crate) task: String,
    /// What happens while the run before has not settled: `skip`, `queue` or `replace`.
    pub(crate) overlap: &'a str,
    /// Which of several missed runs are inserted: `one`, `none` or `all`.
    pub(crate) backfill: &'a str,
    /// With `all`: how many missed runs are inserted at most; `None`: each.
    pub(crate) max_backfill: Option<i32>,
}

/// Sets a schedule; returns when its next run is due, nothing if it is paused. One that was there and has other times now keeps what
/// is due by the old ones, which is inserted before what is due by the new ones.
pub(crate) fn set(new: &New, calendar: &Calendar) -> Result<Option<Time>> {
    let never = || {
        let what = format!("\"{}\", which never comes", shortened(new.cron));
        Refusal::not_valid("cron", &what, "Give a time that comes.")
    };
    loop {
        check_for_interrupts();
        // The clock is read behind the lock: what was inserted up to then does not come again.
        let before = schedule::BEFORE.first(new.name);
        let now = clock::now();
        let next = calendar.after(now).ok_or_else(never)?;
        let values = (new.overlap, new.backfill, new.max_backfill);
        let task = JsonText(new.task.clone());
        let Some(before) = before else {
            let row = (new.name, new.cron, calendar.zone(), task, values.0, values.1, values.2, next);
            match schedule::INSERT.first(row) {
                Some(_) => return Ok(Some(next)),
                // Another transaction has just set it.
                None => continue,
            }
        };
        let (next, kept_until, follows_from) = effect(&before, calendar, now, next);
        schedule::CHANGE.execute((
            new.name,
            new.cron,
            calendar.zone(),
            task,
            values.0,
            values.1,
            values.2,
            next,
            kept_until,
            follows_from,
        ));
        catch_up(new.name, now);
        // Set anew, one that is paused stays so: a deployment that sets schedules does not resume them.
        return Ok(schedule::NEXT_OF.first(new.name).filter(|next| *next != Time::INFINITY));
    }
}

/// When one that is set anew is due next; until when there are runs left of what it was; or else, if there are some of what it was
/// before that, from when on it has some of its own.
fn effect(before: &Before, calendar: &Calendar, now: Time, next: Time) -> (Time, Option<Time>, Option<Time>) {
    let old = Calendar::parse(&before.cron, &before.timezone).ok();
    if old.as_ref() == Some(calendar) {
        // What is due is so still. The next time lies behind that of the clock where its expression could not be read, or the clock
        // was put back.
        let next = if before.since.is_none() { before.next_at.min(next) } else { before.next_at };
        return (next, None, None);
    }
    let due_by_it = match before.since {
        Some(since) => old.and_then(|old| old.after(since)),
        None => old.map(|_| before.next_at),
    };
    match (due_by_it.is_some_and(|due| due <= now), before.since) {
        (true, _) => (before.next_at, Some(now), None),
        (false, Some(_)) => (before.next_at, None, Some(now)),
        (false, None) => (next, None, None),
    }
}
