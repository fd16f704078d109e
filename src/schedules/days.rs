//! The days that an expression is for.

use chrono::{Datelike, NaiveDate, Weekday};

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
    /// The days of the week that are meant in every week.
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

/// Whether the bit of this number is set.
pub(super) fn has(values: u64, n: u32) -> bool {
    n < u64::BITS && values >> n & 1 == 1
}

impl MonthDays {
    /// Whether the date is one of them.
    pub(super) fn have(&self, date: NaiveDate) -> bool {
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
    /// Whether the date is one of them.
    pub(super) fn have(&self, date: NaiveDate) -> bool {
        let (weekday, day) = (date.weekday().num_days_from_sunday(), date.day());
        has(self.values, weekday)
            || has(self.nth[(day as usize - 1) / 7], weekday)
            || (has(self.last, weekday) && day + 7 > u32::from(date.num_days_in_month()))
    }
}
