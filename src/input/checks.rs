//! What names and intervals may be.

use pgrx::datum::Interval;

use super::shape::Problem;
use crate::error::{Refusal, Result, required};

/// The longest id, name of an action, group, workgroup or step, merge key and unique key, in bytes. The limit keeps each well inside
/// what an index entry can hold.
pub(crate) const MAX_NAME: usize = 1000;

/// What to give where an interval is wrong.
pub(crate) const INTERVAL_HINT: &str = "Give an interval from 0 to 1,000 years, \"5 minutes\" for instance.";

/// What is wrong with a key that is a name, if anything.
pub(super) fn name_problem(key: &str, name: &str) -> Option<Problem> {
    let what = match name.len() {
        0 => format!("key \"{key}\" is empty"),
        len if len > MAX_NAME => format!("key \"{key}\" has {len} bytes, {MAX_NAME} are allowed"),
        _ => return None,
    };
    let hint = match key {
        "action" => "Give a name of 1 to 1,000 bytes.",
        "id" => "Give an id of 1 to 1,000 bytes; a task that is inserted without one gets one.",
        _ => "Give a name of 1 to 1,000 bytes, or leave it out.",
    };
    Some(Problem::new(what, hint))
}

/// What is wrong with an interval, if anything: it goes backwards, or so far that a time plus it may not
/// be a time any more. As Postgres compares intervals, a month has 30 days.
pub(crate) fn interval_problem(interval: Interval) -> Option<&'static str> {
    const THOUSAND_YEARS: i128 = 1000 * 12 * 30 * 24 * 3600 * 1_000_000;
    match interval.as_micros() {
        micros if micros < 0 => Some("negative"),
        micros if micros > THOUSAND_YEARS => Some("longer than 1,000 years"),
        _ => None,
    }
}

/// An argument that is a name: of an action, a group, a workgroup or a step.
pub(crate) fn check_name<'a>(argument: &str, name: Option<&'a str>) -> Result<&'a str> {
    match required(argument, name)? {
        name if name.is_empty() || name.len() > MAX_NAME => Err(Refusal::not_valid(
            argument,
            &format!("{} bytes long", name.len()),
            "Give a name of 1 to 1,000 bytes.",
        )),
        name => Ok(name),
    }
}

/// An argument that is an interval from 0 to 1,000 years.
pub(crate) fn check_interval(argument: &str, interval: Option<Interval>) -> Result<Option<Interval>> {
    match interval.and_then(interval_problem) {
        Some(problem) => {
            Err(Refusal::out_of_range(argument, problem, "Give an interval from 0 to 1,000 years."))
        }
        None => Ok(interval),
    }
}
