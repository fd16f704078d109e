//! A task.

use std::borrow::Cow;
use std::fmt;

use pgrx::datum::Interval;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::link::RawReference;
use super::read::{read, text_of};
use crate::error::{Refusal, Result};
use crate::input::intervals::Intervals;
use crate::input::keys::TASK;
use crate::input::{Element, INTERVAL_HINT, Problem, TaskSpec, interval_problem, unique};
use crate::pg::clock::{self, Time};
use crate::pg::json::JsonText;

/// The keys of a task; [`TASK`](crate::input::keys::TASK) has the same for messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTask<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    action: Option<Cow<'a, str>>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    priority: Option<i32>,
    max_tries: Option<i32>,
    #[serde(borrow)]
    lease: Option<Cow<'a, str>>,
    #[serde(borrow)]
    not_before: Option<Cow<'a, str>>,
    #[serde(borrow)]
    delay: Option<Cow<'a, str>>,
    depends_on: Option<Vec<RawReference>>,
    to_signal_after: Option<Vec<RawReference>>,
    num_required: Option<i32>,
    spontaneous: Option<bool>,
    signal: Option<bool>,
    #[serde(borrow)]
    expires_at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    expires_in: Option<Cow<'a, str>>,
    #[serde(borrow)]
    max_run_time: Option<Cow<'a, str>>,
    post_result: Option<bool>,
    #[serde(borrow)]
    group_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    retention: Option<RawRetention<'a>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    backoff: Option<&'a RawValue>,
    #[serde(borrow)]
    workgroup: Option<Cow<'a, str>>,
    #[serde(borrow)]
    merge_key: Option<Cow<'a, str>>,
    seed: Option<bool>,
    #[serde(borrow)]
    unique_by: Option<&'a RawValue>,
}

/// Reads a task.
pub(in crate::input) fn parse_task(
    n: Option<usize>,
    json: &str,
    intervals: &mut Intervals,
    now: Time,
) -> Result<TaskSpec> {
    let raw: RawTask = read(Element::Task, n, json)?;
    let id = raw.id.map(Cow::into_owned);
    let refuse = |problem: Problem| Element::Task.malformed(n, id.as_deref(), &problem);
    let mut interval = |key: &str, text: Option<Cow<str>>| interval_of(&refuse, intervals, key, text);
    let lease = interval("lease", raw.lease)?;
    let (completed, aborted) = match raw.retention {
        None => (None, None),
        Some(RawRetention { completed, aborted }) => (completed, aborted),
    };
    let retention = interval("retention", completed)?;
    let retention_aborted = interval("retention", aborted)?;
    let delay = interval("delay", raw.delay)?;
    let max_run_time = interval("max_run_time", raw.max_run_time)?;
    let expires_in = interval("expires_in", raw.expires_in)?;
    let not_before = time_of(&refuse, now, ("not_before", raw.not_before), ("delay", delay))?;
    let expires_at = time_of(&refuse, now, ("expires_at", raw.expires_at), ("expires_in", expires_in))?;
    let metadata = metadata_of(raw.metadata).map_err(&refuse)?;
    let action = raw.action.ok_or_else(|| refuse(TASK.misses("key \"action\" is missing")))?.into_owned();
    let references =
        |list: Option<Vec<RawReference>>| list.unwrap_or_default().into_iter().map(|r| r.0).collect();
    let body = raw.body.map(text_of);
    let unique = match raw.unique_by {
        Some(value) => unique::parse(value.get(), body.as_deref(), intervals)
            .map_err(|problem| refuse(problem.within("key \"unique_by\": ")))?,
        None => None,
    };
    TaskSpec {
        id: id.clone(),
        action,
        body,
        priority: raw.priority.unwrap_or(0),
        max_tries: raw.max_tries,
        lease,
        not_before,
        expires_at,
        max_run_time,
        depends_on: references(raw.depends_on),
        to_signal_after: references(raw.to_signal_after),
        num_required: raw.num_required,
        spontaneous: raw.spontaneous.unwrap_or(false),
        signal: raw.signal.unwrap_or(false),
        post_result: raw.post_result.unwrap_or(false),
        group: raw.group_id.map(Cow::into_owned),
        retention,
        retention_aborted,
        metadata,
        backoff: raw.backoff.map(|value| JsonText(value.get().to_owned())),
        workgroup: raw.workgroup.map(Cow::into_owned),
        merge_key: raw.merge_key.map(Cow::into_owned),
        seed: raw.seed.unwrap_or(false),
        unique: unique.map(Box::new),
    }
    .checked(n)
}

fn metadata_of(value: Option<&RawValue>) -> std::result::Result<Option<JsonText>, Problem> {
    match value {
        Some(value) if !value.get().starts_with('{') => Err(Problem::new(
            "key \"metadata\" is not a JSON object",
            "Give an object, or leave the key out.",
        )),
        other => Ok(other.map(|value| JsonText(value.get().to_owned()))),
    }
}

/// The interval under a key.
pub(super) fn interval_of(
    refuse: &impl Fn(Problem) -> Refusal,
    intervals: &mut Intervals,
    key: &str,
    text: Option<Cow<str>>,
) -> Result<Option<Interval>> {
    let Some(text) = text else { return Ok(None) };
    let problem = match intervals.get(&text) {
        None => format!("key \"{key}\" is not an interval: \"{text}\""),
        Some(interval) => match interval_problem(interval) {
            Some(problem) => format!("key \"{key}\" is {problem}"),
            None => return Ok(Some(interval)),
        },
    };
    Err(refuse(Problem::new(problem, INTERVAL_HINT)))
}

/// A time that is given as such under one key, or as an interval from now on under another.
pub(super) fn time_of(
    refuse: &impl Fn(Problem) -> Refusal,
    now: Time,
    (at, text): (&str, Option<Cow<str>>),
    (after, interval): (&str, Option<Interval>),
) -> Result<Option<Time>> {
    match (text, interval) {
        (Some(_), Some(_)) => Err(refuse(Problem::new(
            format!("both \"{at}\" and \"{after}\" are given"),
            "Give one of the two.",
        ))),
        (Some(text), None) => clock::parse_timestamptz(&text).map(Some).ok_or_else(|| {
            let what = format!("key \"{at}\" is not a timestamp: \"{text}\"");
            refuse(Problem::new(what, "Give a timestamp, such as \"2030-01-31 12:00 UTC\"."))
        }),
        (None, interval) => Ok(interval.map(|interval| now.plus(interval))),
    }
}

/// How long a task is kept: an interval, or one for each outcome.
struct RawRetention<'a> {
    completed: Option<Cow<'a, str>>,
    aborted: Option<Cow<'a, str>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawRetention<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct RetentionVisitor;

        impl<'de> Visitor<'de> for RetentionVisitor {
            type Value = RawRetention<'de>;

            // Never seen: what is refused is explained by its shape.
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a retention")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Self::Value, E> {
                let both = Some(Cow::Owned(text.to_owned()));
                Ok(RawRetention { completed: both.clone(), aborted: both })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
                let (mut completed, mut aborted) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "completed" => completed = map.next_value::<Option<String>>()?.map(Cow::Owned),
                        "aborted" => aborted = map.next_value::<Option<String>>()?.map(Cow::Owned),
                        other => return Err(de::Error::unknown_field(other, &["completed", "aborted"])),
                    }
                }
                Ok(RawRetention { completed, aborted })
            }
        }

        deserializer.deserialize_any(RetentionVisitor)
    }
}
