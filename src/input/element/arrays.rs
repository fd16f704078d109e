//! Arrays of elements.

use serde_json::value::RawValue;

use super::awaited::{self, AwaitedSpec};
use super::link::{self, DependencySpec};
use super::task;
use crate::clock;
use crate::error::{Refusal, Result};
use crate::input::intervals::Intervals;
use crate::input::kind::Element;
use crate::input::shape;
use crate::input::task::TaskSpec;

/// The elements of a JSON array, unread.
pub(in crate::input) fn elements<'a>(
    json: &'a str,
    argument: &str,
    kind: Element,
) -> Result<Vec<&'a RawValue>> {
    serde_json::from_str(json).map_err(|_| Refusal::not_an_array(argument, kind.name(), shape::kind(json)))
}

/// Reads a JSON array of tasks.
pub(crate) fn parse_tasks(json: &str) -> Result<Vec<TaskSpec>> {
    parse_all(json, "tasks")
}

/// The same, where the tasks are children.
pub(crate) fn parse_children(json: &str) -> Result<Vec<TaskSpec>> {
    parse_all(json, "children")
}

fn parse_all(json: &str, argument: &str) -> Result<Vec<TaskSpec>> {
    let elements: Vec<&RawValue> = elements(json, argument, Element::Task)?;
    let mut cache = Intervals::default();
    let now = clock::now();
    elements
        .iter()
        .enumerate()
        .map(|(i, element)| task::parse_task(Some(i + 1), element.get(), &mut cache, now))
        .collect()
}

/// Reads the argument `depends_on` of a return: what the task waits for before it goes on.
pub(crate) fn parse_awaited(json: &str) -> Result<Vec<AwaitedSpec>> {
    let mut cache = Intervals::default();
    let now = clock::now();
    elements(json, "depends_on", Element::Awaited)?
        .iter()
        .enumerate()
        .map(|(i, element)| awaited::parse_awaited(i + 1, element.get(), &mut cache, now))
        .collect()
}

/// Reads a JSON array of dependencies.
pub(crate) fn parse_dependencies(json: &str) -> Result<Vec<DependencySpec>> {
    elements(json, "dependencies", Element::Dependency)?
        .iter()
        .enumerate()
        .map(|(i, element)| link::parse_dependency(i + 1, element.get()))
        .collect()
}
