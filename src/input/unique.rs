//! The key `unique_by` of a task: which unique key it holds, for how long, and what it does if another holds it.

use std::borrow::Cow;

use pgrx::datum::Interval;
use serde::Deserialize;

use super::checks::{INTERVAL_HINT, MAX_NAME, interval_problem};
use super::intervals::Intervals;
use super::keys::UNIQUE;
use super::shape::{Problem, not_one_of};
use crate::pg::digest::sha256;

/// States of a task, as bits of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Blocked = 1,
    Scheduled = 2,
    Ready = 4,
    InProgress = 8,
    Completed = 16,
    Aborted = 32,
}

/// The three states of a task that is pending.
const PENDING: i16 = State::Blocked as i16 | State::Scheduled as i16 | State::Ready as i16;
/// The states of a task that is not settled.
const UNSETTLED: i16 = PENDING | State::InProgress as i16;

impl State {
    /// From the bit.
    pub(crate) fn from_stored(bit: i16) -> Self {
        match bit {
            1 => State::Blocked,
            2 => State::Scheduled,
            8 => State::InProgress,
            16 => State::Completed,
            32 => State::Aborted,
            _ => State::Ready,
        }
    }

    /// Whether the task is pending.
    pub(crate) fn is_pending(self) -> bool {
        self as i16 & PENDING != 0
    }

    /// Whether the state belongs to a set.
    pub(crate) fn is_in(self, states: i16) -> bool {
        self as i16 & states != 0
    }
}

/// What happens to a task whose key another one holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnHeld {
    /// The call is refused.
    Error,
    /// The new one takes the place of the other, or comes after it.
    Replace,
    /// The new one is not inserted.
    #[default]
    Skip,
}

/// What makes a task unique.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unique {
    /// As the caller gives it, else derived from the body.
    pub(crate) key: String,
    /// The key is given up so long after the task's `not_before`, or its insertion if that is later, unless its state has given it up
    /// before; `None`: by its state only.
    pub(crate) period: Option<Interval>,
    /// The task holds the key while it is in one of these states.
    pub(crate) states: i16,
    /// What happens if another task holds the key.
    pub(crate) on_conflict: OnHeld,
    /// With [`OnHeld::Replace`]: `not_before` is put off up to so long after the first insertion; `None`: without a bound.
    pub(crate) max_wait: Option<Interval>,
}

impl Unique {
    /// Whether inserting it may lock the task that holds its key, as a rule.
    pub(crate) fn locks_holder(&self) -> bool {
        // The states are those of the holder, which as a rule was inserted with the same ones.
        self.on_conflict == OnHeld::Replace || !State::InProgress.is_in(self.states)
    }

    /// Whether a task that is being inserted will hold the key in some state of those that are pending.
    pub(crate) fn holds_while_pending(&self) -> bool {
        self.states & PENDING != 0
    }
}

/// The object form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUnique<'a> {
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    period: Option<Cow<'a, str>>,
    #[serde(borrow)]
    states: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    on_conflict: Option<Cow<'a, str>>,
    #[serde(borrow)]
    max_wait: Option<Cow<'a, str>>,
}

/// Reads `true`, a key, or an object; `None` for `false`. The error says what is wrong.
pub(crate) fn parse(
    json: &str,
    body: Option<&str>,
    intervals: &mut Intervals,
) -> Result<Option<Unique>, Problem> {
    let raw = match json.as_bytes().first() {
        Some(b'f') => return Ok(None),
        Some(b't') => RawUnique { key: None, period: None, states: None, on_conflict: None, max_wait: None },
        Some(b'"') => {
            let key = serde_json::from_str(json).map_err(|_| UNIQUE.misses("it cannot be read"))?;
            RawUnique { key: Some(key), period: None, states: None, on_conflict: None, max_wait: None }
        }
        _ => UNIQUE.read(json)?,
    };
    let mut interval = |name: &str, text: Option<Cow<str>>| match text {
        None => Ok(None),
        Some(text) => match intervals.get(&text) {
            None => Err(Problem::new(format!("\"{name}\" is not an interval: \"{text}\""), INTERVAL_HINT)),
            Some(interval) => match interval_problem(interval) {
                Some(problem) => Err(Problem::new(format!("\"{name}\" is {problem}"), INTERVAL_HINT)),
                None if name == "period" && interval.as_micros() == 0 => {
                    Err(Problem::new(format!("\"{name}\" is zero"), "Leave it out to have no period."))
                }
                None => Ok(Some(interval)),
            },
        },
    };
    let period = interval("period", raw.period)?;
    let max_wait = interval("max_wait", raw.max_wait)?;
    let on_conflict = match raw.on_conflict.as_deref() {
        None | Some("skip") => OnHeld::Skip,
        Some("error") => OnHeld::Error,
        Some("replace") => OnHeld::Replace,
        Some(other) => {
            return Err(not_one_of("\"on_conflict\" is ", other, &["skip", "replace", "error"]));
        }
    };
    if max_wait.is_some() && on_conflict != OnHeld::Replace {
        let what = "\"max_wait\" is for \"on_conflict\": \"replace\"";
        return Err(Problem::new(what, "Leave it out, or let the new task replace the old one."));
    }
    let states = match raw.states {
        None if period.is_some() => UNSETTLED | State::Completed as i16,
        None => UNSETTLED,
        Some(names) => states(&names)?,
    };
    let key = match raw.key {
        None => derived(body),
        Some(key) if key.is_empty() => {
            return Err(Problem::new("\"key\" is empty", KEY_HINT));
        }
        Some(key) if key.len() > MAX_NAME => {
            let what = format!("\"key\" has {} bytes, {MAX_NAME} are allowed", key.len());
            return Err(Problem::new(what, KEY_HINT));
        }
        Some(key) => key.into_owned(),
    };
    Ok(Some(Unique { key, period, states, on_conflict, max_wait }))
}

const KEY_HINT: &str = "Give a key of 1 to 1,000 bytes, or leave it out to have it made from the body.";

const STATES: [&str; 7] = ["pending", "blocked", "scheduled", "ready", "in-progress", "completed", "aborted"];

fn states(names: &[Cow<str>]) -> Result<i16, Problem> {
    let mut states = 0;
    for name in names {
        states |= match name.as_ref() {
            "pending" => PENDING,
            "blocked" => State::Blocked as i16,
            "scheduled" => State::Scheduled as i16,
            "ready" => State::Ready as i16,
            "in-progress" => State::InProgress as i16,
            "completed" => State::Completed as i16,
            "aborted" => State::Aborted as i16,
            other => return Err(not_one_of("\"states\" has ", other, &STATES)),
        };
    }
    if states == 0 {
        let hint = format!("Give some of {}, or leave it out.", STATES.join(", "));
        return Err(Problem::new("\"states\" is empty", hint));
    }
    Ok(states)
}

/// The longest body that is a key as it is; of a longer one the key has the digest.
const LONGEST_BODY: usize = 200;

/// The key of tasks that are the same if their bodies are.
fn derived(body: Option<&str>) -> String {
    match body {
        None => "body".to_owned(),
        Some(body) if body.len() <= LONGEST_BODY => format!("body:{body}"),
        Some(body) => format!("body:sha256:{}", sha256(body)),
    }
}
