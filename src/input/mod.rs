//! What callers say of a task, a dependency or a return: from JSON (docs/reference) or from typed arguments to one
//! checked form. "Parse, don't validate": what leaves here is well-formed, except what hangs on other things than the element itself,
//! and the status code of a return.

pub(crate) mod backoff;
mod checks;
mod element;
mod intervals;
mod keys;
mod kind;
mod meant;
mod shape;
mod task;
mod unique;

use std::collections::HashSet;

use serde_json::value::RawValue;

pub(crate) use checks::{
    INTERVAL_HINT, MAX_TOGETHER, check_interval, check_length, check_name, check_value, cut_status,
    interval_problem,
};
pub(crate) use element::{
    AwaitedSpec, DependencySpec, ReturnSpec, Said, SignalSpec, parse_awaited, parse_children,
    parse_dependencies, parse_tasks,
};
pub(crate) use kind::Element;
pub(crate) use meant::near;
pub(crate) use shape::Problem;
pub(crate) use task::{Reference, TaskSpec, Wants, check_id, check_sizes};
pub(crate) use unique::{OnHeld, States, Unique};

use crate::clock;
use crate::error::{Refusal, Result};
use intervals::Intervals;

/// Reads one task.
pub(crate) fn parse_task(json: &str, argument: &str) -> Result<TaskSpec> {
    match json.starts_with('{') {
        true => element::parse_task(None, json, &mut Intervals::default(), clock::now()),
        false => Err(Refusal::not_an_object(argument, Element::Task.name(), shape::kind(json))),
    }
}

/// Reads the argument `unique_by` of `insert_task` and `insert_many`, which is the key of that name.
pub(crate) fn parse_unique(json: &str, body: Option<&str>) -> std::result::Result<Option<Unique>, Problem> {
    unique::parse(json, body, &mut Intervals::default())
}

/// The elements of an argument that is a JSON array of bodies.
pub(crate) fn bodies<'a>(argument: &str, json: &'a str) -> Result<Vec<&'a RawValue>> {
    serde_json::from_str(json).map_err(|_| {
        let message = format!("argument \"{argument}\" is not a JSON array");
        Refusal::argument(&message, &format!("It is {}.", shape::kind(json)), "Give an array of bodies.")
    })
}

/// How a body that is given as JSON is stored: a string as it is, null as none, anything else as its text.
pub(crate) fn body_of(json: &str) -> Option<String> {
    element::body_of(json)
}

/// Reads a JSON array of returns.
pub(crate) fn parse_returns(json: &str) -> Result<Vec<ReturnSpec>> {
    let mut cache = Intervals::default();
    element::elements(json, "returns", Element::Return)?
        .iter()
        .enumerate()
        .map(|(i, element)| element::parse_return(i + 1, element.get(), &mut cache))
        .collect()
}

/// Reads a JSON array of signals. Of those with one id the first counts.
pub(crate) fn parse_signals(json: &str) -> Result<Vec<SignalSpec>> {
    let mut cache = Intervals::default();
    let mut seen = HashSet::new();
    let mut signals = Vec::new();
    for (i, element) in element::elements(json, "signals", Element::Signal)?.iter().enumerate() {
        let signal = element::parse_signal(i + 1, element.get(), &mut cache)?;
        if seen.insert(signal.task_id.clone()) {
            signals.push(signal);
        }
    }
    Ok(signals)
}
