//! The key `unique_by` of a task: which unique key it holds, for how long, and what it does if another holds it.

use std::borrow::Cow;

use pgrx::datum::Interval;
use serde::Deserialize;

use super::checks::{INTERVAL_HINT, interval_problem};
use super::intervals::Intervals;
use super::keys::UNIQUE;
use super::shape::{Problem, not_one_of};
use crate::error::MAX_NAME;
use crate::pg::clock::Time;
use crate::pg::digest::sha256;

/// A set of states in which a task may be, as it is stored: the sum of their bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct States(pub(crate) i16);

impl States {
    /// It waits for others.
    pub(crate) const BLOCKED: Self = States(1);
    /// It waits for its time.
    pub(crate) const SCHEDULED: Self = States(2);
    /// It may be granted.
    pub(crate) const READY: Self = States(4);
    /// An actor has it, or it rides on a task that one has.
    pub(crate) const IN_PROGRESS: Self = States(8);
    /// It has completed.
    pub(crate) const COMPLETED: Self = States(16);
    /// It was aborted.
    pub(crate) const ABORTED: Self = States(32);
    /// The three states of a task that is pending.
    pub(crate) const PENDING: Self = States(1 + 2 + 4);
    /// Those of one that is not settled.
    const UNSETTLED: Self = States(1 + 2 + 4 + 8);

    /// Whether a state is in both.
    pub(crate) fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
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
    pub(crate) states: States,
    /// What happens if another task holds the key.
    pub(crate) on_conflict: OnHeld,
    /// With [`OnHeld::Replace`]: `not_before` is put off up to so long after the first insertion; `None`: without a bound.
    pub(crate) max_wait: Option<Interval>,
}

impl Unique {
    /// Whether inserting it is likely to lock the task that holds its key.
    pub(crate) fn locks_holder(&self) -> bool {
        // The states that count are those of the holder, which most often was inserted with the same ones.
        self.on_conflict == OnHeld::Replace || !self.states.meet(States::IN_PROGRESS)
    }

    /// The end of its period, for a task that is inserted now and not owned before this time; `None`: it has none.
    pub(crate) fn until(&self, not_before: Option<Time>, now: Time) -> Option<Time> {
        Some(not_before.map_or(now, |time| time.max(now)).plus(self.period?))
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
        None if period.is_some() => States(States::UNSETTLED.0 | States::COMPLETED.0),
        None => States::UNSETTLED,
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

fn states(names: &[Cow<str>]) -> Result<States, Problem> {
    let mut states = 0;
    for name in names {
        let named = match name.as_ref() {
            "pending" => States::PENDING,
            "blocked" => States::BLOCKED,
            "scheduled" => States::SCHEDULED,
            "ready" => States::READY,
            "in-progress" => States::IN_PROGRESS,
            "completed" => States::COMPLETED,
            "aborted" => States::ABORTED,
            other => return Err(not_one_of("\"states\" has ", other, &STATES)),
        };
        states |= named.0;
    }
    if states == 0 {
        let hint = format!("Give some of {}, or leave it out.", STATES.join(", "));
        return Err(Problem::new("\"states\" is empty", hint));
    }
    Ok(States(states))
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
