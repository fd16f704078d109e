//! The times of an expression on a clock that is never put forward or back, in seconds since 1970 as it shows them.

use chrono::{DateTime, NaiveDate};

use super::fields::Fields;

const DAY: i64 = 86_400;

/// How many days are looked at for one that an expression is for. The rarest there is, a fifth weekday of February,
/// comes every 28 years, and after forty at most where 2100 lies between.
const LOOKED_AT: usize = 50 * 366;

/// The first of the values from this one on.
fn from(values: u64, value: i64) -> Option<i64> {
    let left = u32::try_from(value).ok().and_then(|value| values.checked_shr(value))?;
    (left != 0).then(|| value + i64::from(left.trailing_zeros()))
}

/// The last of the values up to this one.
fn until(values: u64, value: i64) -> Option<i64> {
    let left = u32::try_from(63 - value).ok().and_then(|unused| values.checked_shl(unused))?;
    (left != 0).then(|| value - i64::from(left.leading_zeros()))
}

fn date(day: i64) -> Option<NaiveDate> {
    DateTime::from_timestamp(day.checked_mul(DAY)?, 0).map(|time| time.date_naive())
}

impl Fields {
    /// The first time from this one on.
    pub(super) fn next(&self, time: i64) -> Option<i64> {
        let mut day = time.div_euclid(DAY);
        let mut second = time.rem_euclid(DAY);
        let mut date = date(day)?;
        for _ in 0..LOOKED_AT {
            if self.has_day(date)
                && let Some(found) = self.second_from(second)
            {
                return Some(day * DAY + found);
            }
            (day, second, date) = (day + 1, 0, date.succ_opt()?);
        }
        None
    }

    /// The last time up to this one.
    pub(super) fn previous(&self, time: i64) -> Option<i64> {
        let mut day = time.div_euclid(DAY);
        let mut second = time.rem_euclid(DAY);
        let mut date = date(day)?;
        for _ in 0..LOOKED_AT {
            if self.has_day(date)
                && let Some(found) = self.second_until(second)
            {
                return Some(day * DAY + found);
            }
            (day, second, date) = (day - 1, DAY - 1, date.pred_opt()?);
        }
        None
    }

    /// The first second of a day from this one on.
    fn second_from(&self, second: i64) -> Option<i64> {
        self.search(second, from, 1, 0)
    }

    /// The last second of a day up to this one.
    fn second_until(&self, second: i64) -> Option<i64> {
        self.search(second, until, -1, 59)
    }

    /// The second of a day that is found first from this one on, one value after the other by `find`, which begins with `edge`
    /// wherever the value before is another one.
    fn search(&self, second: i64, find: fn(u64, i64) -> Option<i64>, step: i64, edge: i64) -> Option<i64> {
        let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
        let hour = find(self.hours, h)?;
        if hour == h {
            let minute = find(self.minutes, m);
            if minute == Some(m)
                && let Some(s) = find(self.seconds, s)
            {
                return Some(h * 3600 + m * 60 + s);
            }
            if let Some(minute) = find(self.minutes, if minute == Some(m) { m + step } else { m }) {
                return Some(h * 3600 + minute * 60 + find(self.seconds, edge)?);
            }
        }
        let hour = if hour == h { find(self.hours, h + step)? } else { hour };
        Some(hour * 3600 + find(self.minutes, edge)? * 60 + find(self.seconds, edge)?)
    }
}
