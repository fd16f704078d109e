//! On which days an expression is for.

use chrono::{Datelike, NaiveDate, Weekday};

use super::fields::Fields;

/// Days of a month.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MonthDays {
    /// Bit 1 is the first.
    pub(super) values: u64,
    /// `15W`: the day from Monday to Friday that comes nearest, within the month.
    pub(super) nearest_workday: u64,
    /// `L`
    pub(super) last: bool,
    /// `LW`: the last day from Monday to Friday.
    pub(super) last_workday: bool,
}

/// Days of a week; bit 0 is Sunday.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Weekdays {
    pub(super) values: u64,
    /// `FRI#2`: the first to the fifth of a month.
    pub(super) nth: [u64; 5],
    /// `FRIL`: the last of a month.
    pub(super) last: u64,
}

/// Sunday as 0, also where it is 7.
pub(super) fn with_one_sunday(values: u64) -> u64 {
    (values | values >> 7) & 0x7f
}

fn has(values: u64, n: u32) -> bool {
    n < u64::BITS && values >> n & 1 == 1
}

impl Fields {
    /// Whether there are times on this day. If days of the month and of the week are given, either will do.
    pub(super) fn has_day(&self, date: NaiveDate) -> bool {
        has(self.months, date.month())
            && match (&self.days, &self.weekdays) {
                (None, None) => true,
                (Some(days), None) => days.have(date),
                (None, Some(days)) => days.have(date),
                (Some(days), Some(weekdays)) => days.have(date) || weekdays.have(date),
            }
    }
}

impl MonthDays {
    fn have(&self, date: NaiveDate) -> bool {
        let (day, end) = (date.day(), u32::from(date.num_days_in_month()));
        if has(self.values, day) || (self.last && day == end) {
            return true;
        }
        let asked = |day: u32| day <= end && has(self.nearest_workday, day);
        let (nearest, is_last) = match date.weekday() {
            Weekday::Sat | Weekday::Sun => return false,
            // A Saturday's, and a Sunday's that ends the month.
            Weekday::Fri => (asked(day + 1) || (day + 2 == end && asked(end)), day + 2 >= end),
            // A Sunday's, and a Saturday's that begins the month.
            Weekday::Mon => (asked(day - 1) || (day == 3 && asked(1)), day == end),
            _ => (false, day == end),
        };
        asked(day) || nearest || (self.last_workday && is_last)
    }
}

impl Weekdays {
    fn have(&self, date: NaiveDate) -> bool {
        let (weekday, day) = (date.weekday().num_days_from_sunday(), date.day());
        has(self.values, weekday)
            || has(self.nth[(day as usize - 1) / 7], weekday)
            || (has(self.last, weekday) && day + 7 > u32::from(date.num_days_in_month()))
    }
}
