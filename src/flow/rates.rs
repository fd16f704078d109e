//! Rate limits that hold over all sessions together: a bucket for each action that has one.
//!
//! It is a row that a claim takes with SKIP LOCKED and changes in its own transaction: a rolled-back grant has taken
//! nothing, and no two grants take the same. A claim that finds it locked skips the action, and does not know what will
//! be left; a waiting call looks again soon.

use std::time::Duration;

use pgrx::datum::Interval;

use crate::clock;
use crate::pg::clock::{Time, length};
use crate::pg::session::check_for_interrupts;
use crate::store::bucket;
use crate::wake;

/// Makes the bucket of an action fit its new limit, `None` for no rate. What the rate `before` has left by now is left, up to the
/// limit: what is set holds from now on, and not for the time since the last grant. The caller has the action's row in
/// `action_setting` to itself.
pub(crate) fn fit(name: &str, before: Option<(i32, Interval)>, limit: Option<i32>) {
    let Some(limit) = limit.map(f64::from) else {
        bucket::REMOVE.execute(name);
        return;
    };
    loop {
        if let Some((level, measured_at)) = bucket::AWAIT.first(name) {
            let now = clock::now().max(measured_at);
            let level = before
                .map_or(level, |(most, period)| refilled(level, measured_at, most, length(period), now));
            bucket::POUR.execute((name, level.min(limit), now));
            return;
        }
        // A claim may have changed it since the statement's snapshot: it is another version then.
        if bucket::PEEK.first(name).is_none() {
            bucket::MAKE.execute((name, limit, clock::now()));
            return;
        }
        check_for_interrupts();
    }
}

/// What a rate limit leaves at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bucket {
    level: f64,
    at: Time,
}

impl Bucket {
    /// Locks an action's bucket and fills it up to now; `None` if another transaction holds it, or there is none.
    ///
    /// The clock is read when the lock is had, not when the call `began`: the transaction that had it before has
    /// committed, and read the clock before us. With an earlier time the bucket would go back behind that one's, and be
    /// refilled twice for the time in between.
    pub(crate) fn lock(name: &str, limit: i32, period: Interval, began: Time) -> Option<Self> {
        // The second time for one that was changed between the statement's snapshot and the lock.
        let Some((level, measured_at)) = (0..2).find_map(|_| bucket::LOCK.first(name)) else {
            wake::passed_over();
            return None;
        };
        let now = clock::now().max(began);
        Some(Bucket { level: refilled(level, measured_at, limit, length(period), now), at: now })
    }

    /// How many grants it allows.
    pub(crate) fn allowed(self) -> i32 {
        // A hair's breadth for what floating point loses on the way up.
        (self.level + 1e-9).floor().max(0.0) as i32
    }

    /// Takes what was granted.
    pub(crate) fn take(self, name: &str, granted: usize) {
        if granted > 0 {
            bucket::POUR.execute((name, (self.level - granted as f64).max(0.0), self.at));
        }
    }
}

/// The level of a bucket of `limit` that refills over `period`.
fn refilled(level: f64, measured_at: Time, limit: i32, period: Duration, now: Time) -> f64 {
    let limit = f64::from(limit);
    let passed = measured_at.until(now).as_micros() as f64;
    if period.is_zero() { limit } else { (level + passed * limit / period.as_micros() as f64).min(limit) }
}

/// When the bucket allows a grant again; `None` if it does now, or there is none.
pub(crate) fn next_grant(name: &str, limit: i32, period: Interval, now: Time) -> Option<Time> {
    let (level, measured_at) = bucket::PEEK.first(name)?;
    let period = length(period);
    let level = refilled(level, measured_at, limit, period, now);
    let missing = 1.0 - level;
    (missing > 1e-9).then(|| {
        now + Duration::from_micros((missing * period.as_micros() as f64 / f64::from(limit)).ceil() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_refills_evenly_and_never_beyond_its_size() {
        let minute = Duration::from_secs(60);
        let at = |seconds| Time(0) + Duration::from_secs(seconds);
        assert_eq!(refilled(0.0, at(0), 60, minute, at(1)), 1.0);
        assert_eq!(refilled(0.0, at(0), 60, minute, at(30)), 30.0);
        assert_eq!(refilled(10.0, at(0), 60, minute, at(3600)), 60.0);
        assert_eq!(refilled(5.0, at(10), 60, minute, at(0)), 5.0);
    }
}
