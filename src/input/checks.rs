//! What names and intervals may be.

use pgrx::datum::Interval;

use super::shape::Problem;
use crate::error::{MAX_NAME, Refusal, Result, required};

/// How long a body, a result, a checkpoint or the result of a step may be as text, in bytes. COPY may double it, and the text of a grant
/// or of a row of a view has several: see [`MAX_TOGETHER`].
pub(crate) const MAX_VALUE: usize = 64 << 20;

/// How long metadata may be as text, in bytes.
pub(crate) const MAX_METADATA: usize = 1 << 20;

/// How long body, result, checkpoint and metadata of one task may be together, in bytes. PostgreSQL sends a row only if its text has
/// less than 1 GB: a grant has these, the body once more as JSON, and up to 200 MB each of results and steps.
pub(crate) const MAX_TOGETHER: usize = 128 << 20;

/// How much of a status is kept, in bytes. A call that settles very many tasks stores it once for each.
pub(crate) const MAX_STATUS: usize = 64 << 10;

/// How long a back-off may be as JSON, in bytes.
pub(super) const MAX_BACKOFF: usize = 1000;

/// What to give where an interval is wrong.
pub(crate) const INTERVAL_HINT: &str = "Give an interval from 0 to 1,000 years, such as \"5 minutes\".";

/// What is wrong with a key that is a name, if anything.
pub(in crate::input) fn name_problem(key: &str, name: &str) -> Option<Problem> {
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

/// The same of a name that is only looked for: one that is empty is none there is.
pub(crate) fn check_length(argument: &str, name: &str) -> Result<()> {
    if name.len() <= MAX_NAME { Ok(()) } else { check_name(argument, Some(name)).map(|_| ()) }
}

/// `54000`: a body, result or checkpoint of more than is allowed; `what` names it, and may name the task.
pub(crate) fn check_value(what: impl FnOnce() -> String, bytes: usize) -> Result<()> {
    if bytes <= MAX_VALUE { Ok(()) } else { Err(Refusal::too_long(&what(), bytes, MAX_VALUE)) }
}

/// The same of metadata.
pub(crate) fn check_metadata_length(what: impl FnOnce() -> String, bytes: usize) -> Result<()> {
    if bytes <= MAX_METADATA { Ok(()) } else { Err(Refusal::too_long(&what(), bytes, MAX_METADATA)) }
}

/// A status, as much as is kept of it: whole characters.
pub(crate) fn cut_status(status: Option<String>) -> Option<String> {
    let mut status = status?;
    if status.len() > MAX_STATUS {
        let end = (0..=MAX_STATUS).rev().find(|at| status.is_char_boundary(*at)).unwrap_or(0);
        status.truncate(end);
        status.shrink_to_fit();
    }
    Some(status)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_cut_between_characters() {
        let cut = |text: String| cut_status(Some(text)).unwrap();
        assert_eq!(cut_status(None), None);
        assert_eq!(cut("x".repeat(MAX_STATUS)).len(), MAX_STATUS);
        assert_eq!(cut("x".repeat(MAX_STATUS + 1)).len(), MAX_STATUS);
        // Two bytes each, and the bound is between the two of one.
        assert_eq!(cut(format!("x{}", "ä".repeat(MAX_STATUS))).len(), MAX_STATUS - 1);
    }
}
