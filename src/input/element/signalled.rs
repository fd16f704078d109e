//! One signal of many.

use std::borrow::Cow;

use pgrx::datum::Interval;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::awaited::SIGNAL_ACTION;
use super::read::read;
use super::task::interval_of;
use crate::error::Result;
use crate::input::intervals::Intervals;
use crate::input::{Element, Problem, TaskSpec, check_id};
use crate::pg::json::JsonText;

/// A signal that is sent, and what comes with it.
pub(crate) struct SignalSpec {
    /// The id of the signal.
    pub(crate) task_id: String,
    /// What it leaves to those that wait for it.
    pub(crate) result: Option<JsonText>,
    /// A text for people.
    pub(crate) status: Option<String>,
    /// The action of the task that is inserted if there is none.
    pub(crate) action: String,
    /// How long such a one is kept; `None`: as any task of the action, but a day at least.
    pub(crate) retention: Option<Interval>,
}

/// The keys of a signal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSignal<'a> {
    task_id: Option<String>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    status: Option<String>,
    action: Option<String>,
    #[serde(borrow)]
    retention: Option<Cow<'a, str>>,
}

/// Reads the nth element.
pub(in crate::input) fn parse_signal(n: usize, json: &str, intervals: &mut Intervals) -> Result<SignalSpec> {
    let raw: RawSignal = read(Element::Signal, n, json)?;
    let id = raw.task_id.as_deref();
    let refuse = |problem: Problem| Element::Signal.malformed(n, id, &problem);
    check_id(Some(n), id)?;
    let Some(task_id) = id.map(str::to_owned) else {
        return Err(refuse(Element::Signal.keys().misses("key \"task_id\" is missing")));
    };
    let retention = interval_of(&refuse, intervals, "retention", raw.retention)?;
    let action = raw.action.unwrap_or_else(|| SIGNAL_ACTION.to_owned());
    // What may be wrong with the name of an action is said as of a task.
    TaskSpec { id: Some(task_id.clone()), action: action.clone(), signal: true, ..TaskSpec::default() }
        .checked(Some(n))?;
    Ok(SignalSpec {
        task_id,
        result: raw.result.map(|value| JsonText(value.get().to_owned())),
        status: raw.status,
        action,
        retention,
    })
}
