//! What a cron expression says: the values that each field of a wall clock may have.
//!
//! A name of a month or of a day counts in its own field only, and an element that cannot be read is refused: a schedule
//! that runs at another time than its author thinks is worse than none.

use chrono::{Datelike, NaiveDate};

use super::days::{MonthDays, Weekdays, has, with_one_sunday};
use crate::error::shortened;

/// Names that crontabs have for expressions.
const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FORM_HINT: &str = "Give five fields (minute, hour, day of month, month, day of week), six with seconds first, or one of \
                         @hourly, @daily (or @midnight), @weekly, @monthly, @yearly (or @annually).";
const NAME_HINT: &str = "Names of days (SUN to SAT) belong in the last field, day of week, those of months (JAN to DEC) in the one before it.";

/// The times of a wall clock that an expression is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// Bit n stands for second n.
    pub(super) seconds: u64,
    /// Bit n stands for minute n.
    pub(super) minutes: u64,
    /// Bit n stands for hour n.
    pub(super) hours: u64,
    /// Bit n stands for month n; bit 1 is January.
    pub(super) months: u64,
    /// `None`: any day of the month.
    pub(super) days: Option<MonthDays>,
    /// `None`: any day of the week.
    pub(super) weekdays: Option<Weekdays>,
    /// The hour has a wildcard, with a step or without.
    pub(super) any_hour: bool,
}

/// Why an expression cannot be read, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// What is wrong, to stand behind "The value is"; of one field of several, what is wrong with that.
    pub(crate) what: String,
    /// A sentence that says what to give instead.
    pub(crate) hint: String,
}

impl Unreadable {
    fn new(what: impl Into<String>, hint: &str) -> Self {
        Unreadable { what: what.into(), hint: hint.to_owned() }
    }
}

/// A field of an expression, with the values that it may have.
struct Kind {
    name: &'static str,
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const fn kind(name: &'static str, first: u32, last: u32, names: &'static [&'static str]) -> Kind {
    Kind { name, first, last, names }
}

static SECOND: Kind = kind("second", 0, 59, &[]);
static MINUTE: Kind = kind("minute", 0, 59, &[]);
static HOUR: Kind = kind("hour", 0, 23, &[]);
static DAY: Kind = kind("day of month", 1, 31, &[]);
static MONTH: Kind = kind("month", 1, 12, MONTHS);
/// Sunday is 0 and 7.
static WEEKDAY: Kind = kind("day of week", 0, 7, WEEKDAYS);

impl Fields {
    /// Reads five fields, six with seconds first, or a name.
    pub(super) fn read(expression: &str) -> Result<Self, Unreadable> {
        let text = expression.trim();
        let known = NICKNAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        if known.is_none() && text.starts_with('@') {
            let what = format!("\"{}\", no name of a cron expression", shortened(expression));
            return Err(Unreadable::new(what, FORM_HINT));
        }
        let fields: Vec<&str> = known.map_or(text, |(_, fields)| fields).split_whitespace().collect();
        let (second, [minute, hour, day, month, weekday]) = match *fields.as_slice() {
            [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
            [second, minute, hour, day, month, weekday] => (second, [minute, hour, day, month, weekday]),
            _ => {
                let what = format!(
                    "\"{}\", which has {} fields instead of 5 or 6",
                    shortened(expression),
                    fields.len()
                );
                return Err(Unreadable::new(what, FORM_HINT));
            }
        };
        let named = |kind: &'static Kind, field: &str| {
            let (name, expression, field) = (kind.name, shortened(expression), shortened(field));
            move |why: Unreadable| Unreadable {
                what: format!("\"{expression}\", whose {name} \"{field}\" cannot be read: {}", why.what),
                hint: why.hint,
            }
        };
        let plain = |kind, field| values(kind, field).map_err(named(kind, field));
        Ok(Fields {
            seconds: plain(&SECOND, second)?,
            minutes: plain(&MINUTE, minute)?,
            hours: plain(&HOUR, hour)?,
            days: days(day).map_err(named(&DAY, day))?,
            months: plain(&MONTH, month)?,
            weekdays: weekdays(weekday).map_err(named(&WEEKDAY, weekday))?,
            any_hour: hour.contains('*'),
        })
    }

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

/// The elements of a field, none of which is empty.
fn elements(field: &str) -> Result<Vec<String>, Unreadable> {
    let elements: Vec<String> = field.split(',').map(str::to_uppercase).collect();
    match elements.iter().any(String::is_empty) {
        true => Err(Unreadable::new(
            "one of its elements is empty",
            "Leave out the comma that has nothing beside it.",
        )),
        false => Ok(elements),
    }
}

/// The values of a field, as bits.
fn values(kind: &Kind, field: &str) -> Result<u64, Unreadable> {
    elements(field)?.iter().try_fold(0, |all, element| Ok(all | range(kind, element)?))
}

/// The values of `*`, of one value, or of a range, each of these with a step or without.
fn range(kind: &Kind, element: &str) -> Result<u64, Unreadable> {
    let (base, step) = match element.split_once('/') {
        Some((base, step)) => (base, Some(number(step).filter(|step| *step > 0))),
        None => (element, None),
    };
    // What has no end goes to the last value: that Sunday has two is for ranges up to it.
    let end = if kind.last == WEEKDAY.last { 6 } else { kind.last };
    let (first, last) = match base.split_once('-') {
        None if base == "*" => (kind.first, end),
        None => {
            let first = value(kind, base)?;
            (first, if step.is_some() { end.max(first) } else { first })
        }
        Some((_, "SUN")) if kind.last == WEEKDAY.last && base.starts_with("SUN") => (7, 7),
        Some((first, "SUN")) if kind.last == WEEKDAY.last => (value(kind, first)?, 7),
        Some((first, last)) => (value(kind, first)?, value(kind, last)?),
    };
    if first > last {
        return Err(Unreadable::new(
            format!("the range \"{}\" goes backwards", shortened(base)),
            "Give it as two ranges, with a comma between them.",
        ));
    }
    let step = match step {
        None => 1,
        Some(Some(step)) => step,
        Some(None) => {
            return Err(Unreadable::new(
                format!("\"{}\" has a step that is no number from 1 up", shortened(element)),
                "Give a step like that of */15.",
            ));
        }
    };
    Ok((first..=last).step_by(step as usize).fold(0, |all, value| all | 1 << value))
}

/// One value of a field.
fn value(kind: &Kind, text: &str) -> Result<u32, Unreadable> {
    let named = |names: &[&str]| names.iter().position(|name| *name == text);
    let value = number(text).or_else(|| named(kind.names).map(|n| n as u32 + kind.first));
    if let Some(value) = value.filter(|value| (kind.first..=kind.last).contains(value)) {
        return Ok(value);
    }
    let other = [(MONTHS, "month"), (WEEKDAYS, "day of the week")]
        .into_iter()
        .find(|(names, _)| named(names).is_some());
    Err(match other {
        Some((_, of)) => Unreadable::new(format!("\"{text}\" is the name of a {of}"), NAME_HINT),
        None => Unreadable::new(
            format!("\"{}\" is no value from {} to {}", shortened(text), kind.first, kind.last),
            FORM_HINT,
        ),
    })
}

/// A number of nothing but digits.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// `*` and `?` stand for any day, but only as a whole field. Any other field of days, such as `*/2`, counts as a restriction; and
/// where both fields of days have one, a day that fits one of them will do.
fn is_any(field: &str) -> bool {
    matches!(field, "*" | "?")
}

/// The days of a month: values, and `L`, `LW`, `15W`.
fn days(field: &str) -> Result<Option<MonthDays>, Unreadable> {
    let mut days = MonthDays::default();
    for element in elements(field)?.iter().filter(|_| !is_any(field)) {
        match element.strip_suffix('W') {
            Some("L") => days.last_workday = true,
            Some(day) => days.nearest_workday |= 1 << value(&DAY, day).map_err(workday)?,
            None if element == "L" => days.last = true,
            None => {
                days.values |= range(&DAY, element)
                    .map_err(|why| if element.contains('L') { last_day(element) } else { why })?
            }
        }
    }
    Ok((!is_any(field)).then_some(days))
}

fn workday(why: Unreadable) -> Unreadable {
    Unreadable {
        hint: "W stands behind one day, 15W for the weekday nearest to the 15th, or in LW, the last weekday."
            .to_owned(),
        ..why
    }
}

fn last_day(element: &str) -> Unreadable {
    Unreadable::new(
        format!("\"{}\" is no day", shortened(element)),
        "L stands alone, for the last day of the month, or in LW, for its last weekday.",
    )
}

/// The days of a week: values, and `FRI#2`, `FRIL`.
fn weekdays(field: &str) -> Result<Option<Weekdays>, Unreadable> {
    const HINT: &str = "Give one day, and which one of the month: FRI#1 to FRI#5, or FRIL for the last.";
    let mut days = Weekdays::default();
    let day = |text: &str| {
        Ok(1 << (value(&WEEKDAY, text).map_err(|why| Unreadable { hint: HINT.to_owned(), ..why })? % 7))
    };
    for element in elements(field)?.iter().filter(|_| !is_any(field)) {
        match (element.split_once('#'), element.strip_suffix('L')) {
            (Some((of, nth)), _) => match number(nth) {
                Some(nth @ 1..=5) => days.nth[nth as usize - 1] |= day(of)?,
                _ => {
                    let what =
                        format!("\"{}\" is none of the five that a month may have", shortened(element));
                    return Err(Unreadable::new(what, HINT));
                }
            },
            (None, Some("")) => {
                return Err(Unreadable::new("\"L\" does not say of which day it is the last", HINT));
            }
            (None, Some(of)) => days.last |= day(of)?,
            (None, None) => days.values |= with_one_sunday(range(&WEEKDAY, element)?),
        }
    }
    Ok((!is_any(field)).then_some(days))
}
