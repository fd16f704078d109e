//! Times of a cron expression, in a time zone.
//!
//! Expressions are read by `croner`, which finds the times that a wall clock shows; zones are those of `chrono-tz`, and
//! [`zone`] tells when such a time is. At a change of the clocks a job at fixed hours runs once for each of its times: at its first
//! occurrence when the clock goes back, right after the gap when it goes forward. One with a wildcard for the hour goes by
//! real time: it runs whenever the clock shows one of its times. (The rules of Vixie cron. The library's own for zones left an
//! hour of autumn out, and ran what stands before the gap of spring once more behind it.)

use std::time::Duration;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};

use super::zone;
use crate::pg::clock::Time;

/// 2000-01-01, Postgres' epoch, in microseconds of the Unix epoch.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// A cron expression in a time zone.
pub(crate) struct Calendar {
    cron: Cron,
    zone: Tz,
    by_real_time: bool,
}

impl Calendar {
    /// Reads five fields, or six with seconds first; the error says what is wrong.
    pub(crate) fn parse(expression: &str, zone: &str) -> Result<Self, (&'static str, String)> {
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        // The one name that crontabs have and the library has not.
        let midnight = expression.trim().eq_ignore_ascii_case("@midnight");
        let expression = if midnight { "@daily" } else { expression };
        let cron = parser
            .parse(&with_one_sunday(expression))
            .map_err(|e| ("cron", problem(&parser, expression, &e)))?;
        let zone =
            zone.parse::<Tz>().map_err(|_| ("timezone", format!("\"{zone}\", an unknown time zone")))?;
        Ok(Calendar { cron, zone, by_real_time: has_any_hour(expression) })
    }

    /// The first time after the given one; `None` if there is no other.
    pub(crate) fn after(&self, time: Time) -> Option<Time> {
        // Times of a cron expression are whole seconds.
        let time = time.0.checked_add(POSTGRES_EPOCH)?.div_euclid(1_000_000);
        let next = if self.by_real_time { self.next_shown(time + 1) } else { self.next_once(time) }?;
        Some(of_seconds(next))
    }

    /// The first time from this one on when the clock shows one of the times.
    fn next_shown(&self, mut from: i64) -> Option<i64> {
        loop {
            let ahead = zone::offset(self.zone, from);
            let next = self.wall(from + ahead, true, Cron::find_next_occurrence)? - ahead;
            match zone::next_change(self.zone, from, next) {
                None => return Some(next),
                Some(change) => from = change,
            }
        }
    }

    /// The first after this one of the times that come once.
    fn next_once(&self, time: i64) -> Option<i64> {
        // All up to what the clock shows now have come: it has shown them, or gone past them.
        let mut wall = time + zone::offset(self.zone, time);
        loop {
            wall = self.wall(wall, false, Cron::find_next_occurrence)?;
            // In an hour that is repeated it may show what has come before.
            let next = zone::first_of(self.zone, wall)?;
            if next > time {
                return Some(next);
            }
        }
    }

    /// The next or the previous time that a wall clock shows.
    fn wall(&self, from: i64, inclusive: bool, find: Find) -> Option<i64> {
        Some(find(&self.cron, &DateTime::<Utc>::from_timestamp(from, 0)?, inclusive).ok()?.timestamp())
    }

    /// The first of the times from `first` to `last`, at most so many. `first` is one of them.
    pub(super) fn first(&self, first: Time, last: Time, count: usize) -> Vec<Time> {
        let all = std::iter::successors(Some(first), |time| self.after(*time));
        all.take_while(|time| *time <= last).take(count).collect()
    }

    /// The last of the times from `first` to `last`, at most so many, oldest first. `first` is one of them.
    ///
    /// Looks back from `last` for where to begin, since there may be millions; the times themselves are those
    /// that looking forward finds, which is what decides at a change of the clocks.
    pub(super) fn last(&self, first: Time, last: Time, count: usize) -> Vec<Time> {
        let mut begin = last;
        for _ in 0..count {
            match self.before(begin) {
                Some(time) if time > first => begin = time,
                _ => {
                    begin = first;
                    break;
                }
            }
        }
        // The occurrence at `begin` itself counts: it is looked for from right before it.
        let mut times = std::collections::VecDeque::new();
        let mut next = if begin == first { Some(first) } else { self.after(begin - Duration::from_secs(1)) };
        while let Some(time) = next.filter(|time| *time <= last) {
            times.push_back(time);
            if times.len() > count {
                times.pop_front();
            }
            next = self.after(time);
        }
        times.into()
    }

    /// The last time before the given one.
    fn before(&self, time: Time) -> Option<Time> {
        // A time within a second has that second before it.
        let time = time.0.checked_add(POSTGRES_EPOCH)?.checked_add(999_999)?.div_euclid(1_000_000);
        let last = if self.by_real_time { self.last_shown(time - 1) } else { self.last_once(time) }?;
        Some(of_seconds(last))
    }

    /// The last time up to this one when the clock showed one of the times.
    fn last_shown(&self, mut until: i64) -> Option<i64> {
        loop {
            let ahead = zone::offset(self.zone, until);
            let last = self.wall(until + ahead, true, Cron::find_previous_occurrence)? - ahead;
            match zone::last_other(self.zone, until, last) {
                None => return Some(last),
                Some(other) => until = other,
            }
        }
    }

    /// The last before this one of the times that come once.
    fn last_once(&self, time: i64) -> Option<i64> {
        // Further than this the clock had not come.
        let ahead = [time, time - 86_400].map(|time| zone::offset(self.zone, time));
        let mut wall = time + ahead[0].max(ahead[1]);
        loop {
            wall = self.wall(wall, false, Cron::find_previous_occurrence)?;
            let last = zone::first_of(self.zone, wall)?;
            if last < time {
                return Some(last);
            }
        }
    }
}

type Find = fn(&Cron, &DateTime<Utc>, bool) -> Result<DateTime<Utc>, CronError>;

fn of_seconds(seconds: i64) -> Time {
    Time(seconds * 1_000_000 - POSTGRES_EPOCH)
}

/// The library has Sunday twice, as 0 and as 7, and reads `SUN-SUN` as all from the one to the other.
fn with_one_sunday(expression: &str) -> String {
    let Some((others, days)) = expression.trim_end().rsplit_once(char::is_whitespace) else {
        return expression.to_owned();
    };
    let sunday = |part: &str| part.split('/').next().is_some_and(|days| days.eq_ignore_ascii_case("sun-sun"));
    let days: Vec<&str> = days.split(',').map(|part| if sunday(part) { "SUN" } else { part }).collect();
    format!("{others} {}", days.join(","))
}

/// Whether the hour of an expression is a wildcard, with a step or without.
fn has_any_hour(expression: &str) -> bool {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    match fields.as_slice() {
        [name] => name.eq_ignore_ascii_case("@hourly"),
        [.., hour, _, _, _] => hour.contains('*'),
        _ => false,
    }
}

/// A time as it stands in ids: ISO 8601, UTC, to the second.
pub(super) fn iso(time: Time) -> String {
    DateTime::<Utc>::from_timestamp_micros(time.0.saturating_add(POSTGRES_EPOCH))
        .map_or_else(|| time.0.to_string(), |utc| utc.format("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Which field of an expression is wrong, and why.
fn problem(parser: &CronParser, expression: &str, error: &CronError) -> String {
    const NAMES: [&str; 6] = ["second", "minute", "hour", "day of month", "month", "day of week"];
    let why = |error: &CronError| match error {
        CronError::ComponentError(why) => why.trim_end_matches('.').to_lowercase(),
        other => other.to_string().trim_end_matches('.').to_owned(),
    };
    let fields: Vec<&str> = expression.split_whitespace().collect();
    if expression.starts_with('@') {
        return format!("\"{expression}\", no name of a cron expression");
    }
    if !(5..=6).contains(&fields.len()) {
        return format!("\"{expression}\", which has {} fields instead of 5 or 6", fields.len());
    }
    // The field that cannot be read where all others may be anything.
    let names = &NAMES[NAMES.len() - fields.len()..];
    let wrong = fields.iter().enumerate().find_map(|(i, field)| {
        let mut alone = vec!["*"; fields.len()];
        alone[i] = field;
        let error = parser.parse(&alone.join(" ")).err()?;
        Some(format!("\"{expression}\", whose {} \"{field}\" cannot be read: {}", names[i], why(&error)))
    });
    wrong.unwrap_or_else(|| format!("\"{expression}\", which cannot be read: {}", why(error)))
}

/// The same to the microsecond.
pub(super) fn iso_exactly(time: Time) -> String {
    DateTime::<Utc>::from_timestamp_micros(time.0.saturating_add(POSTGRES_EPOCH))
        .map_or_else(|| time.0.to_string(), |utc| utc.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

#[cfg(test)]
mod tests;
