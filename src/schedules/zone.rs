//! What a time of the wall clock is in time that passes, where the clock is put forward and back.
//!
//! All times are seconds since 1970: of UTC, or as the wall clock shows them.

use chrono::offset::LocalResult;
use chrono::{DateTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::{TZ_VARIANTS, Tz};

use super::expression::Unreadable;
use crate::error::shortened;
use crate::input::near;

/// No zone is further from UTC, or was.
const FURTHEST: i64 = 16 * 3600;

/// How long an offset holds at least, unless it lies a century back.
const SHORTEST: i64 = 6 * 3600;

/// The zone of a name, in whatever case that is written.
pub(super) fn named(name: &str) -> Result<Tz, Unreadable> {
    let same = || TZ_VARIANTS.iter().copied().find(|zone| zone.name().eq_ignore_ascii_case(name));
    name.parse().ok().or_else(same).ok_or_else(|| {
        let names: Vec<&str> = TZ_VARIANTS.iter().map(|zone| zone.name()).collect();
        Unreadable {
            what: format!("\"{}\", an unknown time zone", shortened(name)),
            hint: match near(name, &names) {
                Some(meant) => format!("\"{meant}\" is probably meant."),
                None => "Give a name of the tz database, such as Europe/Berlin.".to_owned(),
            },
        }
    })
}

fn naive(seconds: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp(seconds, 0).map(|time| time.naive_utc())
}

/// By how much the wall clock is ahead of UTC.
pub(super) fn offset(zone: Tz, time: i64) -> i64 {
    naive(time).map_or(0, |time| i64::from(zone.offset_from_utc_datetime(&time).fix().local_minus_utc()))
}

/// When the wall clock shows this time first; what it leaves out is when it goes on.
pub(super) fn first_of(zone: Tz, wall: i64) -> Option<i64> {
    let ahead = |offset: chrono_tz::TzOffset| i64::from(offset.fix().local_minus_utc());
    Some(match zone.offset_from_local_datetime(&naive(wall)?) {
        LocalResult::Single(offset) => wall - ahead(offset),
        LocalResult::Ambiguous(one, other) => wall - ahead(one).max(ahead(other)),
        LocalResult::None => first(wall - FURTHEST, wall + FURTHEST, |time| time + offset(zone, time) > wall),
    })
}

/// The first time up to `last` that has another offset than `from`, if there is one.
pub(super) fn next_change(zone: Tz, from: i64, last: i64) -> Option<i64> {
    let before = offset(zone, from);
    let differs = |time: i64| offset(zone, time) != before;
    let mut time = from;
    while time < last {
        let next = (time + SHORTEST).min(last);
        if differs(next) {
            return Some(first(time, next, differs));
        }
        time = next;
    }
    None
}

/// The first time after `low`, of which it is not so, up to `high`, of which it is.
fn first(mut low: i64, mut high: i64, is_so: impl Fn(i64) -> bool) -> i64 {
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if is_so(middle) { high = middle } else { low = middle }
    }
    high
}
