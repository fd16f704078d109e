//! How long a task that was given back waits for its next try, where its return does not say and the try counts.

use std::time::Duration;

use serde::Deserialize;

use super::checks::{INTERVAL_HINT, MAX_BACKOFF, interval_problem};
use super::keys::BACKOFF;
use super::shape::{Problem, not_one_of};
use crate::pg::clock;

/// Delays between tries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backoff {
    exponential: bool,
    /// Before the second try; where they are fixed, before each.
    initial: Duration,
    /// No delay exceeds it.
    max: Duration,
    /// The part of a delay, from 0 to 1, that chance may take off.
    jitter: f64,
}

/// The keys of a back-off as they stand in JSON, before they are checked.
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
    pub(crate) fn parse(json: &str) -> Result<Self, Problem> {
        if json.len() > MAX_BACKOFF {
            let what = format!("it has {} bytes, {MAX_BACKOFF} are allowed", json.len());
            return Err(Problem::new(what, "Write the intervals in a shorter way."));
        }
        let raw: RawBackoff = BACKOFF.read(json)?;
        let exponential = match raw.kind.as_str() {
            "fixed" => false,
            "exponential" => true,
            other => {
                return Err(not_one_of("key \"kind\" is ", other, &["fixed", "exponential"]));
            }
        };
        let interval = |key: &str, text: &str| {
            clock::parse_interval(text)
                .filter(|i| interval_problem(*i).is_none())
                .map(clock::length)
                .ok_or_else(|| {
                    let what = format!("key \"{key}\" is not an interval from 0 to 1,000 years: \"{text}\"");
                    Problem::new(what, INTERVAL_HINT)
                })
        };
        let initial = interval("initial", &raw.initial)?;
        let max = raw.max.map_or(Ok(LONGEST_DELAY), |max| interval("max", &max))?;
        let jitter = raw.jitter.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&jitter) {
            let what = "key \"jitter\" is not between 0 and 1";
            return Err(Problem::new(
                what,
                "Give a number from 0 to 1: the part of a delay that chance may take off.",
            ));
        }
        Ok(Backoff { exponential, initial, max, jitter })
    }

    /// How long to wait after `tries` tries; `chance` is between 0 and 1.
    pub(crate) fn delay(self, tries: i32, chance: f64) -> Duration {
        let doublings = if self.exponential { tries.saturating_sub(1).clamp(0, 62) } else { 0 };
        let delay = self.initial.min(LONGEST_DELAY).as_micros() << doublings;
        let delay = delay.min(self.max.min(LONGEST_DELAY).as_micros()) as f64;
        Duration::from_micros((delay * (1.0 - self.jitter * chance)) as u64)
    }
}

/// A thousand years of 360 days: what a time plus a delay can still be.
const LONGEST_DELAY: Duration = Duration::from_secs(1000 * 360 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_fixed_delay_stays_the_same() {
        let backoff = Backoff { exponential: false, initial: 5 * SECOND, max: LONGEST_DELAY, jitter: 0.0 };
        assert_eq!([1, 2, 30].map(|n| backoff.delay(n, 0.7)), [5 * SECOND; 3]);
    }

    #[test]
    fn an_exponential_delay_doubles_up_to_its_cap() {
        let backoff = Backoff { exponential: true, initial: SECOND, max: 10 * SECOND, jitter: 0.0 };
        let delays = [1, 2, 3, 4, 5, 1_000_000].map(|n| backoff.delay(n, 0.0).as_secs());
        assert_eq!(delays, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn no_number_of_tries_overflows() {
        let backoff = Backoff { exponential: true, initial: Duration::MAX, max: LONGEST_DELAY, jitter: 0.0 };
        assert!(backoff.delay(i32::MAX, 0.0) <= LONGEST_DELAY);
    }

    #[test]
    fn jitter_only_shortens_and_by_no_more_than_its_part() {
        let backoff = Backoff { exponential: false, initial: 10 * SECOND, max: LONGEST_DELAY, jitter: 0.5 };
        assert_eq!(backoff.delay(1, 0.0), 10 * SECOND);
        assert_eq!(backoff.delay(1, 1.0), 5 * SECOND);
    }
}
