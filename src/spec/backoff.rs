//! How long a task that was given back waits for its next try.

use pgrx::datum::Interval;
use serde::Deserialize;

use super::{BACKOFF, interval_problem};
use crate::pg::clock;

/// Delays between tries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backoff {
    exponential: bool,
    /// Microseconds before the second try.
    initial: i64,
    /// Microseconds that no delay exceeds.
    max: i64,
    /// The part of a delay, from 0 to 1, that chance may take off.
    jitter: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBackoff {
    kind: String,
    initial: String,
    max: Option<String>,
    jitter: Option<f64>,
}

impl Backoff {
    /// Reads `{"kind", "initial", "max", "jitter"}`; the error says what is wrong.
    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        let raw: RawBackoff = BACKOFF.read(json)?;
        let exponential = match raw.kind.as_str() {
            "fixed" => false,
            "exponential" => true,
            other => {
                return Err(format!("key \"kind\" is \"{other}\", not one of fixed, exponential"));
            }
        };
        let interval = |key: &str, text: &str| {
            clock::parse_interval(text)
                .filter(|i| interval_problem(*i).is_none())
                .map(micros)
                .ok_or_else(|| format!("key \"{key}\" is not an interval from 0 to 1,000 years: \"{text}\""))
        };
        let initial = interval("initial", &raw.initial)?;
        let max = raw.max.map_or(Ok(i64::MAX), |max| interval("max", &max))?;
        let jitter = raw.jitter.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&jitter) {
            return Err("key \"jitter\" is not between 0 and 1".to_owned());
        }
        Ok(Backoff { exponential, initial, max, jitter })
    }

    /// Microseconds to wait after `tries` tries; `chance` is between 0 and 1.
    pub(crate) fn delay(self, tries: i32, chance: f64) -> i64 {
        let doublings = if self.exponential { tries.saturating_sub(1).clamp(0, 62) } else { 0 };
        let delay = i128::from(self.initial) << doublings;
        let delay = delay.min(i128::from(self.max)).min(i128::from(MOST)) as f64;
        (delay * (1.0 - self.jitter * chance)) as i64
    }
}

/// A thousand years: what a time plus a delay can still be.
const MOST: i64 = 1000 * 360 * 24 * 3600 * 1_000_000;

fn micros(interval: Interval) -> i64 {
    i64::try_from(interval.as_micros()).unwrap_or(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn a_fixed_delay_stays_the_same() {
        let backoff = Backoff { exponential: false, initial: 5 * SECOND, max: i64::MAX, jitter: 0.0 };
        assert_eq!([1, 2, 30].map(|n| backoff.delay(n, 0.7)), [5 * SECOND; 3]);
    }

    #[test]
    fn an_exponential_delay_doubles_up_to_its_cap() {
        let backoff = Backoff { exponential: true, initial: SECOND, max: 10 * SECOND, jitter: 0.0 };
        let delays = [1, 2, 3, 4, 5, 1_000_000].map(|n| backoff.delay(n, 0.0) / SECOND);
        assert_eq!(delays, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn no_number_of_tries_overflows() {
        let backoff = Backoff { exponential: true, initial: i64::MAX, max: i64::MAX, jitter: 0.0 };
        assert!(backoff.delay(i32::MAX, 0.0) <= MOST);
    }

    #[test]
    fn jitter_only_shortens_and_by_no_more_than_its_part() {
        let backoff = Backoff { exponential: false, initial: 10 * SECOND, max: i64::MAX, jitter: 0.5 };
        assert_eq!(backoff.delay(1, 0.0), 10 * SECOND);
        assert_eq!(backoff.delay(1, 1.0), 5 * SECOND);
    }
}
