//! What a task that is suspended waits for.

use std::borrow::Cow;

use serde::Deserialize;

use super::link::RawCondition;
use super::read::read;
use super::task::{interval_of, time_of};
use crate::error::Result;
use crate::input::intervals::Intervals;
use crate::input::{Element, Problem, TaskSpec, check_id};
use crate::pg::clock::Time;
use crate::state::Condition;

/// The action of signals whose action is not given.
pub(super) const SIGNAL_ACTION: &str = "signal";

/// A task that a suspended one waits for.
#[derive(Clone, Debug)]
pub(crate) struct AwaitedSpec {
    /// The id of the task, which may not be there yet if `signal` is given.
    pub(crate) id: String,
    /// How it must end for the suspended task to go on; either way, if nothing is said.
    pub(crate) condition: Condition,
    /// The signal that is inserted if there is no task with this id. Without a group of its own it gets that of the suspended task.
    pub(crate) signal: Option<Box<TaskSpec>>,
}

/// The keys of an element.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAwaited<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    condition: Option<RawCondition>,
    signal: Option<bool>,
    #[serde(borrow)]
    action: Option<Cow<'a, str>>,
    #[serde(borrow)]
    group_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    expires_at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    expires_in: Option<Cow<'a, str>>,
}

/// Reads the nth element: an id, or an object.
pub(in crate::input) fn parse_awaited(
    n: usize,
    json: &str,
    intervals: &mut Intervals,
    now: Time,
) -> Result<AwaitedSpec> {
    if let Ok(id) = serde_json::from_str::<String>(json) {
        check_id(Some(n), Some(&id))?;
        return Ok(AwaitedSpec { id, condition: Condition::Settled, signal: None });
    }
    let raw: RawAwaited = read(Element::Awaited, n, json)?;
    let id = raw.id.as_deref();
    let refuse = |problem: Problem| Element::Awaited.malformed(n, id, &problem);
    let Some(name) = id.filter(|id| !id.is_empty()) else {
        return Err(refuse(Element::Awaited.keys().misses("key \"id\" is missing or empty")));
    };
    check_id(Some(n), Some(name))?;
    let of_signal = [
        ("action", raw.action.is_some()),
        ("group_id", raw.group_id.is_some()),
        ("expires_at", raw.expires_at.is_some()),
        ("expires_in", raw.expires_in.is_some()),
    ];
    let is_signal = raw.signal.unwrap_or(false);
    if let Some((key, _)) = of_signal.iter().find(|(_, given)| *given && !is_signal) {
        return Err(refuse(Problem::new(
            format!("key \"{key}\" goes with \"signal\": true only"),
            "It is for the signal that is inserted if there is no task with this id; leave it out, or add the key \"signal\".",
        )));
    }
    let expires_in = interval_of(&refuse, intervals, "expires_in", raw.expires_in)?;
    let expires_at = time_of(&refuse, now, ("expires_at", raw.expires_at), ("expires_in", expires_in))?;
    let signal = is_signal
        .then(|| {
            TaskSpec {
                id: Some(name.to_owned()),
                action: raw.action.as_deref().unwrap_or(SIGNAL_ACTION).to_owned(),
                group: raw.group_id.as_deref().map(str::to_owned),
                signal: true,
                expires_at,
                ..TaskSpec::default()
            }
            .checked(Some(n))
        })
        .transpose()?;
    Ok(AwaitedSpec {
        id: name.to_owned(),
        condition: raw.condition.map_or(Condition::Settled, |c| c.0),
        signal: signal.map(Box::new),
    })
}
