//! Times of a cron expression, in a time zone.
//!
//! [`Expression`] has what one says, and finds the times that a wall clock shows; zones are those of `chrono-tz`, and
//! [`zone`] tells when such a time is. When the clock goes back, a job at fixed hours runs once for each of its times, at the first
//! occurrence. When it goes forward, all its times in the gap are one run right after it. One with a wildcard for the hour
//! goes by real time: it runs whenever the clock shows one of its times.

use std::time::Duration;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::expression::{Expression, Unreadable};
use super::zone;
use crate::pg::clock::Time;

/// 2000-01-01, Postgres' epoch, in microseconds of the Unix epoch.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// A cron expression in a time zone. Two that are equal have the same times.
#[derive(PartialEq)]
pub(crate) struct Calendar {
    expression: Expression,
    zone: Tz,
}

impl Calendar {
    /// Reads five fields, six with seconds first, or a name such as `@daily`; the error says which argument is wrong,
    /// and why.
    pub(crate) fn parse(expression: &str, zone: &str) -> Result<Self, (&'static str, Unreadable)> {
        let expression = Expression::read(expression).map_err(|why| ("cron", why))?;
        let zone = zone::named(zone).map_err(|why| ("timezone", why))?;
        Ok(Calendar { expression, zone })
    }

    /// The name of its time zone.
    pub(crate) fn zone(&self) -> &'static str {
        self.zone.name()
    }

    /// The first time after the given one; `None`: there is none.
    pub(crate) fn after(&self, time: Time) -> Option<Time> {
        // Times of a cron expression are whole seconds.
        let time = time.0.checked_add(POSTGRES_EPOCH)?.div_euclid(1_000_000);
        let next = if self.expression.any_hour { self.next_shown(time + 1) } else { self.next_once(time) }?;
        Some(of_seconds(next))
    }

    /// The first time from this one on when the clock shows one of the times.
    fn next_shown(&self, mut from: i64) -> Option<i64> {
        loop {
            let ahead = zone::offset(self.zone, from);
            let next = self.expression.next(from + ahead)? - ahead;
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
            wall = self.expression.next(wall + 1)?;
            // In an hour that is repeated it may show what has come before.
            let next = zone::first_of(self.zone, wall)?;
            if next > time {
                return Some(next);
            }
        }
    }

    /// The times from this one on, which is one of them, up to `last`.
    fn times(&self, first: Option<Time>, last: Time) -> impl Iterator<Item = Time> {
        std::iter::successors(first, |time| self.after(*time)).take_while(move |time| *time <= last)
    }

    /// The first of the times from `first` to `last`, at most so many. `first` is one of them.
    pub(super) fn first(&self, first: Time, last: Time, count: usize) -> Vec<Time> {
        self.times(Some(first), last).take(count).collect()
    }

    /// The last of the times from `first` to `last`, at most so many, oldest first. `first` is one of them.
    ///
    /// There may be millions: it looks through the last minute, hour, day, month and year, until it has found enough. So it
    /// looks at sixty times as many as it returns at most, or at those of an expression that has no more in a year.
    pub(super) fn last(&self, first: Time, last: Time, count: usize) -> Vec<Time> {
        const BACK: [u64; 5] = [60, 3_600, 86_400, 31 * 86_400, 366 * 86_400];
        let begins = BACK.into_iter().map(|back| last - Duration::from_secs(back));
        let mut times: Vec<Time> = begins
            .take_while(|begin| *begin > first)
            .map(|begin| self.times(self.after(begin), last).collect::<Vec<_>>())
            .find(|times| times.len() >= count)
            .unwrap_or_else(|| self.times(Some(first), last).collect());
        times.split_off(times.len().saturating_sub(count))
    }
}

fn of_seconds(seconds: i64) -> Time {
    Time(seconds * 1_000_000 - POSTGRES_EPOCH)
}

/// A time as it stands in ids: ISO 8601, UTC, to the second.
pub(super) fn iso(time: Time) -> String {
    DateTime::<Utc>::from_timestamp_micros(time.0.saturating_add(POSTGRES_EPOCH))
        .map_or_else(|| time.0.to_string(), |utc| utc.format("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// The same to the microsecond.
pub(super) fn iso_exactly(time: Time) -> String {
    DateTime::<Utc>::from_timestamp_micros(time.0.saturating_add(POSTGRES_EPOCH))
        .map_or_else(|| time.0.to_string(), |utc| utc.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

#[cfg(test)]
mod tests;
