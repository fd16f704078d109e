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

/// Sets a schedule; returns when its next run is due, nothing if it is paused. Of one that was there and has other times now, what is
/// due by the old ones is inserted before.
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
        let task = JsonText(new.task.clone());
        let row = (new.name, new.cron, calendar.zone(), task, new.overlap, new.backfill, new.max_backfill);
        let row = |next| (row.0, row.1, row.2, row.3, row.4, row.5, row.6, next);
        let Some(before) = before else {
            match schedule::INSERT.first(row(next)) {
                Some(_) => return Ok(Some(next)),
                // Another transaction has just set it.
                None => continue,
            }
        };
        let next = effect(&before, calendar, next);
        if !before.is_paused && next > now {
            catch_up(new.name, now);
        }
        schedule::CHANGE.execute(row(next));
        // Set anew, one that is paused stays so: a deployment that sets schedules does not resume them.
        return Ok(Some(next).filter(|_| !before.is_paused));
    }
}

/// When one that is set anew is due next, if `next` is the first of its new times that lies ahead.
fn effect(before: &Before, calendar: &Calendar, next: Time) -> Time {
    let old = Calendar::parse(&before.cron, &before.timezone).ok();
    if old.as_ref() == Some(calendar) {
        // What is due is so still. The next time lies behind that of the clock where its expression could not be read, or the clock
        // was put back.
        return before.next_at.min(next);
    }
    // What a paused one has missed is asked of the new times once it is resumed.
    let missed = if before.is_paused { calendar.after(before.next_at) } else { None };
    missed.map_or(next, |missed| missed.min(next))
}
