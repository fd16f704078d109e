//! What a cron expression says: `croner` reads it, and finds the times of a wall clock that is never put forward or back.
//!
//! The library takes for something what is nothing, or something else: a name of a month or a day in any field, an empty
//! element, `L` or `7L` as a day of the week. Such an element is refused here, or written as the library understands it: a
//! schedule that runs at another time than its author thinks is worse than none.

use chrono::DateTime;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};

use crate::error::shortened;

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FORM_HINT: &str = "Give five fields (minute, hour, day of month, month, day of week), six with seconds first, or one of \
                         @hourly, @daily (or @midnight), @weekly, @monthly, @yearly (or @annually).";
const NAME_HINT: &str = "Names of days (SUN to SAT) belong in the last field, day of week, those of months (JAN to DEC) in the one before it.";
const DAY_HINT: &str = "Give one day, and which one of the month: FRI#1 to FRI#5, or FRIL for the last.";

/// An expression that can be read. Two that are equal have the same times.
#[derive(PartialEq)]
pub(super) struct Expression {
    cron: Cron,
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

/// A field of an expression: what it is called, the names that its values have, and the letters that may stand behind one.
struct Field {
    name: &'static str,
    names: &'static [&'static str],
    marks: &'static str,
}

const fn field(name: &'static str, names: &'static [&'static str], marks: &'static str) -> Field {
    Field { name, names, marks }
}

static FIELDS: [Field; 6] = [
    field("second", &[], ""),
    field("minute", &[], ""),
    field("hour", &[], ""),
    field("day of month", &[], "LW"),
    field("month", MONTHS, ""),
    field("day of week", WEEKDAYS, "L"),
];

impl Expression {
    /// Reads five fields, six with seconds first, or a name.
    pub(super) fn read(expression: &str) -> Result<Self, Unreadable> {
        let text = expression.trim().to_uppercase();
        if text.starts_with('@') {
            let name = if text == "@MIDNIGHT" { "@DAILY" } else { &text };
            let what = || format!("\"{}\", no name of a cron expression", shortened(expression));
            let cron = parse(name).map_err(|_| Unreadable::new(what(), FORM_HINT))?;
            return Ok(Expression { cron, any_hour: name == "@HOURLY" });
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let Some(kinds) = FIELDS.len().checked_sub(fields.len()).filter(|left| *left < 2) else {
            let what =
                format!("\"{}\", which has {} fields instead of 5 or 6", shortened(expression), fields.len());
            return Err(Unreadable::new(what, FORM_HINT));
        };
        let kinds = &FIELDS[kinds..];
        let named = |at: usize, why: Unreadable| {
            let (name, field) = (kinds[at].name, shortened(fields[at]));
            let what = format!(
                "\"{}\", whose {name} \"{field}\" cannot be read: {}",
                shortened(expression),
                why.what
            );
            Unreadable { what, ..why }
        };
        let read = |(at, field): (usize, &str)| kinds[at].read(field).map_err(|why| named(at, why));
        let written: Vec<String> = fields.iter().copied().enumerate().map(read).collect::<Result<_, _>>()?;
        // One field after the other, to name the one that is wrong.
        let alone = |at: usize| {
            let text = |n: usize| if n == at { written[n].as_str() } else { "*" };
            let text = (0..fields.len()).map(text).collect::<Vec<_>>().join(" ");
            parse(&text).err().map(|why| named(at, Unreadable::new(why, FORM_HINT)))
        };
        let any_hour = fields[fields.len() - 4].contains('*');
        match parse(&written.join(" ")) {
            Ok(cron) => Ok(Expression { cron, any_hour }),
            Err(why) => {
                Err((0..fields.len()).find_map(alone).unwrap_or_else(|| Unreadable::new(why, FORM_HINT)))
            }
        }
    }

    /// The first time from this one on, in seconds since 1970 as the clock shows them; `None`: it never comes.
    pub(super) fn next(&self, time: i64) -> Option<i64> {
        let from = DateTime::from_timestamp(time, 0)?;
        self.cron.find_next_occurrence(&from, true).ok().map(|next| next.timestamp())
    }
}

fn parse(text: &str) -> Result<Cron, String> {
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let words = |why| match why {
        CronError::ComponentError(what) | CronError::IllegalCharacters(what) => what,
        other => other.to_string(),
    };
    parser.parse(text).map_err(|why| words(why).trim_end_matches('.').to_owned())
}

impl Field {
    /// A field in capitals, as the library understands it.
    fn read(&self, field: &str) -> Result<String, Unreadable> {
        if field == "?" && !self.marks.is_empty() {
            return Ok("*".to_owned());
        }
        let elements: Vec<String> =
            field.split(',').map(|element| self.element(element)).collect::<Result<_, _>>()?;
        Ok(elements.join(","))
    }

    fn element(&self, element: &str) -> Result<String, Unreadable> {
        if element.is_empty() {
            let hint = "Leave out the comma that has nothing beside it.";
            return Err(Unreadable::new("one of its elements is empty", hint));
        }
        if let Some(word) = element.split(['*', '-', '/', '#']).find(|word| !self.takes(word)) {
            let is_name = [MONTHS, WEEKDAYS].into_iter().any(|names| names.contains(&word));
            let hint = if is_name { NAME_HINT } else { FORM_HINT };
            let what = if is_name { "the name of another field" } else { "no value" };
            return Err(Unreadable::new(format!("\"{}\" is {what}", shortened(word)), hint));
        }
        if self.names != WEEKDAYS {
            return Ok(element.to_owned());
        }
        // No name of a day has an L.
        let (nth, last) = (element.contains('#'), element.contains('L'));
        if nth && last || (nth || last) && element.contains(['*', '-', '/']) {
            return Err(Unreadable::new(format!("\"{}\" is not one day", shortened(element)), DAY_HINT));
        }
        // Sunday is 0 and 7, and it is 7 only where a range ends with it.
        Ok(match element.split_once('/') {
            Some((first, step)) if !first.contains(['*', '-']) => format!("{first}-6/{step}"),
            _ if element == "7L" => "0L".to_owned(),
            _ => element.replace("SUN-SUN", "7-7"),
        })
    }

    /// Whether a word, or nothing, may stand between the signs of an element.
    fn takes(&self, word: &str) -> bool {
        let is_value = |word: &str| {
            !word.is_empty() && word.bytes().all(|c| c.is_ascii_digit()) || self.names.contains(&word)
        };
        let is_marked = |mark: char| word.strip_suffix(mark).is_some_and(is_value);
        word.is_empty()
            || is_value(word)
            || match self.marks {
                "LW" => word == "L" || is_marked('W'),
                "L" => is_marked('L'),
                _ => false,
            }
    }
}
