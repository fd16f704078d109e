//! Times of a cron expression, in a time zone.
//!
//! Expressions are read by `croner`, zones by `chrono-tz`. At a change of daylight saving a job at a fixed
//! time runs once: at its first occurrence when the clock goes back, right after the gap when it goes
//! forward; jobs with a wildcard go by real time.

use std::time::Duration;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};

use crate::pg::clock::Time;

/// 2000-01-01, Postgres' epoch, in microseconds of the Unix epoch.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// A cron expression in a time zone.
pub(crate) struct Calendar {
    cron: Cron,
    zone: Tz,
}

impl Calendar {
    /// Reads five fields, or six with seconds first; the error says what is wrong.
    pub(crate) fn parse(expression: &str, zone: &str) -> Result<Self, (&'static str, String)> {
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        // The one name that crontabs have and the library has not.
        let midnight = expression.trim().eq_ignore_ascii_case("@midnight");
        let cron = parser
            .parse(if midnight { "@daily" } else { expression })
            .map_err(|e| ("cron", problem(&parser, expression, &e)))?;
        let zone =
            zone.parse::<Tz>().map_err(|_| ("timezone", format!("\"{zone}\", an unknown time zone")))?;
        Ok(Calendar { cron, zone })
    }

    /// The first time after the given one; `None` if there is no other.
    pub(crate) fn after(&self, time: Time) -> Option<Time> {
        // Times of a cron expression are whole seconds.
        let seconds = time.0.checked_add(POSTGRES_EPOCH)?.div_euclid(1_000_000);
        let utc = DateTime::<Utc>::from_timestamp(seconds, 0)?;
        let next = self.cron.find_next_occurrence(&utc.with_timezone(&self.zone), false).ok()?;
        Some(Time(next.timestamp_micros() - POSTGRES_EPOCH))
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
        let seconds = time.0.checked_add(POSTGRES_EPOCH)?.checked_add(999_999)?.div_euclid(1_000_000);
        let utc = DateTime::<Utc>::from_timestamp(seconds, 0)?;
        let previous = self.cron.find_previous_occurrence(&utc.with_timezone(&self.zone), false).ok()?;
        Some(Time(previous.timestamp_micros() - POSTGRES_EPOCH))
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
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        let utc: DateTime<Utc> = text.parse().expect("a time");
        Time(utc.timestamp_micros() - POSTGRES_EPOCH)
    }

    fn next(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let calendar = Calendar::parse(expression, zone).unwrap_or_else(|(_, e)| panic!("{e}"));
        let mut time = at(after);
        (0..count)
            .map(|_| {
                time = calendar.after(time).expect("another time");
                iso(time)
            })
            .collect()
    }

    #[test]
    fn five_fields_and_six_with_seconds_are_read() {
        assert_eq!(next("5 4 * * *", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-01-01T04:05:00Z"]);
        assert_eq!(
            next("*/10 * * * * *", "UTC", "2026-01-01T00:00:05Z", 2),
            ["2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z"]
        );
        assert_eq!(next("0 12 * * MON", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-01-05T12:00:00Z"]);
    }

    #[test]
    fn the_names_of_crontabs_are_read() {
        for (name, fields) in [
            ("@hourly", "0 * * * *"),
            ("@daily", "0 0 * * *"),
            ("@midnight", "0 0 * * *"),
            ("@Midnight", "0 0 * * *"),
            ("@weekly", "0 0 * * 0"),
            ("@monthly", "0 0 1 * *"),
            ("@yearly", "0 0 1 1 *"),
            ("@annually", "0 0 1 1 *"),
        ] {
            let from = "2026-01-01T00:00:05Z";
            assert_eq!(next(name, "UTC", from, 3), next(fields, "UTC", from, 3), "{name}");
        }
        assert_eq!(Calendar::parse("@noon", "UTC").err().map(|e| e.0), Some("cron"));
    }

    #[test]
    fn a_nightly_job_in_the_gap_of_spring_runs_once_right_after_it() {
        // Berlin: 02:00 to 03:00 does not exist on 2026-03-29.
        assert_eq!(
            next("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2),
            ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        );
    }

    #[test]
    fn a_nightly_job_in_the_repeated_hour_of_autumn_runs_once() {
        // Berlin: 02:00 to 03:00 comes twice on 2026-10-25.
        assert_eq!(
            next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
    }

    fn last(expression: &str, zone: &str, first: &str, last: &str, count: usize) -> Vec<String> {
        let calendar = Calendar::parse(expression, zone).unwrap_or_else(|(_, e)| panic!("{e}"));
        calendar.last(at(first), at(last), count).into_iter().map(iso).collect()
    }

    #[test]
    fn the_last_times_are_the_newest_and_no_more_than_asked_for() {
        let hourly = |first, end, count| last("0 * * * *", "UTC", first, end, count);
        let (first, end) = ("2026-01-01T01:00:00Z", "2026-01-01T05:20:00Z");
        assert_eq!(hourly(first, end, 2), ["2026-01-01T04:00:00Z", "2026-01-01T05:00:00Z"]);
        assert_eq!(hourly(first, end, 5).len(), 5);
        assert_eq!(hourly(first, end, 9).len(), 5);
        assert_eq!(hourly(first, "2026-01-01T05:00:00Z", 1), ["2026-01-01T05:00:00Z"]);
        assert_eq!(hourly(first, first, 3), ["2026-01-01T01:00:00Z"]);
        // Over twenty years of seconds.
        let seconds = last("* * * * * *", "UTC", "2006-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 3);
        assert_eq!(seconds.last().map(String::as_str), Some("2026-01-01T00:00:00Z"));
        assert_eq!(seconds.len(), 3);
    }

    #[test]
    fn the_last_times_over_a_change_of_the_clocks_are_those_found_forwards() {
        for (first, end) in [
            ("2026-03-28T01:30:00Z", "2026-03-31T12:00:00Z"),
            ("2026-10-24T00:30:00Z", "2026-10-27T12:00:00Z"),
        ] {
            let calendar =
                Calendar::parse("30 2 * * *", "Europe/Berlin").unwrap_or_else(|(_, e)| panic!("{e}"));
            let forwards = calendar.first(at(first), at(end), usize::MAX);
            assert!(forwards.len() > 2, "{forwards:?}");
            for count in 1..=5 {
                let expected = &forwards[forwards.len().saturating_sub(count)..];
                assert_eq!(calendar.last(at(first), at(end), count), expected, "{count} from {first}");
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_argument() {
        assert_eq!(Calendar::parse("61 * * * *", "UTC").err().map(|e| e.0), Some("cron"));
        assert_eq!(Calendar::parse("* * *", "UTC").err().map(|e| e.0), Some("cron"));
        assert_eq!(Calendar::parse("* * * * *", "Mars/Olympus").err().map(|e| e.0), Some("timezone"));
    }
}
