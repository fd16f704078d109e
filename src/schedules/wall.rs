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

    /// The first second of a day from this one on.
    fn second_from(&self, second: i64) -> Option<i64> {
        let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
        let hour = from(self.hours, h)?;
        if hour == h {
            let minute = from(self.minutes, m);
            if minute == Some(m)
                && let Some(s) = from(self.seconds, s)
            {
                return Some(h * 3600 + m * 60 + s);
            }
            if let Some(minute) = from(self.minutes, if minute == Some(m) { m + 1 } else { m }) {
                return Some(h * 3600 + minute * 60 + from(self.seconds, 0)?);
            }
        }
        let hour = if hour == h { from(self.hours, h + 1)? } else { hour };
        Some(hour * 3600 + from(self.minutes, 0)? * 60 + from(self.seconds, 0)?)
    }
}
