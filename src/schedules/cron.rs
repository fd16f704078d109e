//! Times of a cron expression, in a time zone.
//!
//! [`Fields`] has what an expression says, and finds the times that a wall clock shows; zones are those of `chrono-tz`, and
//! [`zone`] tells when such a time is. When the clock goes back, a job at fixed hours runs once for each of its times, at the first
//! occurrence. When it goes forward, all its times in the gap are one run right after it. One with a wildcard for the hour
//! goes by real time: it runs whenever the clock shows one of its times.

use std::time::Duration;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::fields::{Fields, Unreadable};
use super::zone;
use crate::pg::clock::Time;

/// 2000-01-01, Postgres' epoch, in microseconds of the Unix epoch.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// A cron expression in a time zone. Two are equal if their fields and zones mean the same, however they are written.
#[derive(PartialEq, Eq)]
pub(crate) struct Calendar {
    fields: Fields,
    zone: Tz,
}

impl Calendar {
    /// Reads five fields, six with seconds first, or a name such as `@daily`; the error says which argument is wrong,
    /// and why.
    pub(crate) fn parse(expression: &str, zone: &str) -> Result<Self, (&'static str, Unreadable)> {
        let fields = Fields::read(expression).map_err(|why| ("cron", why))?;
        let zone = zone::named(zone).map_err(|why| ("timezone", why))?;
        Ok(Calendar { fields, zone })
    }

    /// The name of its time zone.
    pub(crate) fn zone(&self) -> &'static str {
        self.zone.name()
    }

    /// The first time after the given one; `None` if none is found in some fifty years.
    pub(crate) fn after(&self, time: Time) -> Option<Time> {
        // Times of a cron expression are whole seconds.
        let time = time.0.checked_add(POSTGRES_EPOCH)?.div_euclid(1_000_000);
        let next = if self.fields.any_hour { self.next_shown(time + 1) } else { self.next_once(time) }?;
        Some(of_seconds(next))
    }

    /// The first time from this one on when the clock shows one of the times.
    fn next_shown(&self, mut from: i64) -> Option<i64> {
        loop {
            let ahead = zone::offset(self.zone, from);
            let next = self.fields.next(from + ahead)? - ahead;
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
            wall = self.fields.next(wall + 1)?;
            // In an hour that is repeated it may show what has come before.
            let next = zone::first_of(self.zone, wall)?;
            if next > time {
                return Some(next);
            }
        }
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
        let last = if self.fields.any_hour { self.last_shown(time - 1) } else { self.last_once(time) }?;
        Some(of_seconds(last))
    }

    /// The last time up to this one when the clock showed one of the times.
    fn last_shown(&self, mut until: i64) -> Option<i64> {
        loop {
            let ahead = zone::offset(self.zone, until);
            let last = self.fields.previous(until + ahead)? - ahead;
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
            wall = self.fields.previous(wall - 1)?;
            let last = zone::first_of(self.zone, wall)?;
            if last < time {
                return Some(last);
            }
        }
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
