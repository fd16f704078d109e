//! What callers say of a task: from JSON (docs/reference) or from typed arguments to one
//! checked form. "Parse, don't validate": what leaves here is well-formed.

pub(crate) mod backoff;
mod element;
mod keys;
mod meant;
mod shape;
mod unique;

use pgrx::datum::Interval;
use serde_json::value::RawValue;

pub(crate) use keys::BACKOFF;
pub(crate) use meant::near;
pub(crate) use shape::Problem;
pub(crate) use unique::{OnHeld, State, Unique};

use crate::clock;
use crate::error::{Refusal, Result, required};
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::state::Condition;
use backoff::Backoff;

/// The longest id and the longest name of an action, in bytes. The limit keeps both well inside what an
/// index entry can hold.
pub(crate) const MAX_NAME: usize = 1000;

/// How many bytes a merge key may have together with its action and group: what an index can hold.
const MAX_MERGE_KEY: usize = 2600;

/// What to give where an interval is wrong.
pub(crate) const INTERVAL_HINT: &str = "Give an interval from 0 to 1,000 years, \"5 minutes\" for instance.";

/// A task to insert.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskSpec {
    pub(crate) id: Option<String>,
    pub(crate) action: String,
    pub(crate) body: Option<String>,
    pub(crate) priority: i32,
    pub(crate) max_tries: Option<i32>,
    pub(crate) max_duration: Option<Interval>,
    pub(crate) not_before: Option<Time>,
    /// It aborts then, if it has not been granted by then.
    pub(crate) expires_at: Option<Time>,
    /// The longest that a try of it lasts.
    pub(crate) max_run_time: Option<Interval>,
    pub(crate) depends_on: Vec<Reference>,
    pub(crate) to_signal_after: Vec<Reference>,
    /// How many of its dependencies it needs; `None`: all.
    pub(crate) num_required: Option<i32>,
    pub(crate) spontaneous: bool,
    /// It is completed from outside.
    pub(crate) signal: bool,
    pub(crate) post_result: bool,
    pub(crate) group: Option<String>,
    /// How long it is kept once it has completed.
    pub(crate) retention: Option<Interval>,
    /// How long it is kept once it has aborted.
    pub(crate) retention_aborted: Option<Interval>,
    pub(crate) metadata: Option<JsonText>,
    pub(crate) backoff: Option<JsonText>,
    pub(crate) workgroup: Option<String>,
    pub(crate) merge_key: Option<String>,
    pub(crate) seed: bool,
    pub(crate) unique: Option<Box<Unique>>,
}

/// What a task waits for, beside its dependencies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    /// So many of its dependencies; `None`: all.
    pub(crate) num_required: Option<i32>,
    /// It is completed from outside.
    pub(crate) signal: bool,
}

/// A task at the other end of a dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) id: String,
    pub(crate) condition: Condition,
    /// No caller has named it: the dependency follows from another one that is there.
    pub(crate) follows: bool,
}

impl Reference {
    /// That of a caller.
    pub(crate) fn named(id: String, condition: Condition) -> Self {
        Reference { id, condition, follows: false }
    }

    /// One that follows by itself.
    pub(crate) fn following(id: String, condition: Condition) -> Self {
        Reference { id, condition, follows: true }
    }
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
    let mut cache = element::Intervals::default();
    let now = clock::now();
    elements
        .iter()
        .enumerate()
        .map(|(i, element)| element::parse_task(Some(i + 1), element.get(), &mut cache, now))
        .collect()
}

/// Reads one task.
pub(crate) fn parse_task(json: &str, argument: &str) -> Result<TaskSpec> {
    match json.starts_with('{') {
        true => element::parse_task(None, json, &mut element::Intervals::default(), clock::now()),
        false => Err(Refusal::not_an_object(argument, Element::Task.name(), shape::kind(json))),
    }
}

/// What the elements of an array are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Element {
    /// What a suspended task waits for.
    Awaited,
    Dependency,
    Return,
    Task,
}

impl Element {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Element::Awaited | Element::Dependency => "dependency",
            Element::Return => "return",
            Element::Task => "task",
        }
    }

    pub(crate) fn keys(self) -> &'static shape::Object {
        match self {
            Element::Awaited => &keys::AWAITED,
            Element::Dependency => &keys::DEPENDENCY,
            Element::Return => &keys::RETURN,
            Element::Task => &keys::TASK,
        }
    }

    /// `TQ006`: element `n` (counted from 1) of an array of such is malformed; `None`: the one that the call is about.
    pub(crate) fn malformed(
        self,
        n: impl Into<Option<usize>>,
        id: Option<&str>,
        problem: &Problem,
    ) -> Refusal {
        Refusal::malformed(self.name(), n.into(), id, &problem.what, &problem.hint)
    }
}

/// The elements of a JSON array, unread.
fn elements<'a>(json: &'a str, argument: &str, kind: Element) -> Result<Vec<&'a RawValue>> {
    serde_json::from_str(json).map_err(|_| Refusal::not_an_array(argument, kind.name(), shape::kind(json)))
}

/// One element of an array of dependencies: `{"after", "run", "condition"}`.
pub(crate) struct DependencySpec {
    pub(crate) after: String,
    pub(crate) run: String,
    pub(crate) condition: Condition,
}

/// Reads a JSON array of dependencies.
pub(crate) fn parse_dependencies(json: &str) -> Result<Vec<DependencySpec>> {
    elements(json, "dependencies", Element::Dependency)?
        .iter()
        .enumerate()
        .map(|(i, element)| element::parse_dependency(i + 1, element.get()))
        .collect()
}

/// Reads the argument `unique_by` of `insert_task`, which is the key of that name.
pub(crate) fn parse_unique(json: &str, body: Option<&str>) -> std::result::Result<Option<Unique>, Problem> {
    unique::parse(json, body, &mut element::Intervals::default())
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

/// Reads the argument `depends_on` of a return: what the task waits for before it goes on.
pub(crate) fn parse_awaited(json: &str) -> Result<Vec<AwaitedSpec>> {
    let mut cache = element::Intervals::default();
    let now = clock::now();
    elements(json, "depends_on", Element::Awaited)?
        .iter()
        .enumerate()
        .map(|(i, element)| element::parse_awaited(i + 1, element.get(), &mut cache, now))
        .collect()
}

/// One element of an array of returns; and of what a task waits for that is suspended.
pub(crate) use element::{AwaitedSpec, ReturnSpec};

/// Reads a JSON array of returns.
pub(crate) fn parse_returns(json: &str) -> Result<Vec<ReturnSpec>> {
    let mut cache = element::Intervals::default();
    elements(json, "returns", Element::Return)?
        .iter()
        .enumerate()
        .map(|(i, element)| element::parse_return(i + 1, element.get(), &mut cache))
        .collect()
}

impl TaskSpec {
    /// What it waits for, beside its dependencies.
    pub(crate) fn wants(&self) -> Wants {
        Wants { num_required: self.num_required, signal: self.signal }
    }

    /// Whether a grant has to ask more than its action.
    pub(crate) fn is_gated(&self) -> bool {
        self.group.is_some() || self.workgroup.is_some() || self.merge_key.is_some()
    }

    /// Checks what the types do not say; `n` is the element's place in the call, counted from 1, if there are several.
    pub(crate) fn checked(self, n: Option<usize>) -> Result<Self> {
        let id = self.id.clone();
        let refuse = |problem: Problem| Err(Element::Task.malformed(n, id.as_deref(), &problem));
        check_id(n, self.id.as_deref())?;
        for (key, name) in [
            ("action", Some(self.action.as_str())),
            ("group_id", self.group.as_deref()),
            ("workgroup", self.workgroup.as_deref()),
            ("merge_key", self.merge_key.as_deref()),
        ] {
            if let Some(problem) = name.and_then(|name| name_problem(key, name)) {
                return refuse(problem);
            }
        }
        if let Some(key) = &self.merge_key {
            let all = key.len() + self.action.len() + self.group.as_ref().map_or(0, String::len);
            if all > MAX_MERGE_KEY {
                let what = format!("key \"merge_key\", the action and the group have {all} bytes, ");
                let what = format!("{what}{MAX_MERGE_KEY} are allowed");
                return refuse(Problem::new(
                    what,
                    "Give a shorter key: a digest of a long one, for instance.",
                ));
            }
        }
        if self.max_tries.is_some_and(|tries| tries < 1) {
            let hint = "Give an integer from 1 up, or leave it out for what is set for the action.";
            return refuse(Problem::new("key \"max_tries\" is less than 1", hint));
        }
        if self.num_required.is_some_and(|number| number < 1) {
            let hint =
                "Give a number from 1 to that of its dependencies, or leave it out: then it needs all.";
            return refuse(Problem::new("key \"num_required\" is less than 1", hint));
        }
        for (key, given) in [("spontaneous", self.spontaneous), ("num_required", self.num_required.is_some())]
        {
            if self.signal && given {
                let hint = "A signal is completed from outside, whatever has become of its dependencies: leave one of the two out.";
                return refuse(Problem::new(format!("both \"signal\" and \"{key}\" are given"), hint));
            }
        }
        for (key, interval) in [
            ("max_duration", self.max_duration),
            ("max_run_time", self.max_run_time),
            ("retention", self.retention),
            ("retention", self.retention_aborted),
        ] {
            if let Some(problem) = interval.and_then(interval_problem) {
                return refuse(Problem::new(format!("key \"{key}\" is {problem}"), INTERVAL_HINT));
            }
        }
        if let Some(Err(problem)) = self.backoff.as_ref().map(|json| Backoff::parse(&json.0)) {
            return refuse(problem.within("key \"backoff\": "));
        }
        if self.depends_on.iter().chain(&self.to_signal_after).any(|r| r.id.is_empty()) {
            return refuse(Problem::new(
                "a dependency has an empty id",
                "Name a task, or leave the entry out.",
            ));
        }
        Ok(self)
    }
}

/// Checks the id of element `n` of a call, or of the one that there is.
pub(crate) fn check_id(n: Option<usize>, id: Option<&str>) -> Result<()> {
    match id.and_then(|id| name_problem("id", id)) {
        Some(problem) => Err(Element::Task.malformed(n, id, &problem)),
        None => Ok(()),
    }
}

/// What is wrong with a key that is a name, if anything.
fn name_problem(key: &str, name: &str) -> Option<Problem> {
    let what = match name.len() {
        0 => format!("key \"{key}\" is empty"),
        len if len > MAX_NAME => format!("key \"{key}\" has {len} bytes, {MAX_NAME} are allowed"),
        _ => return None,
    };
    let hint = match key {
        "action" => "Give a name of 1 to 1,000 bytes.",
        "id" => "Give an id of 1 to 1,000 bytes, or leave it out to have one made.",
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

/// An argument that is a name: of an action, a group, a workgroup.
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

/// An argument that is an interval from 0 up.
pub(crate) fn check_interval(argument: &str, interval: Option<Interval>) -> Result<Option<Interval>> {
    match interval.and_then(interval_problem) {
        Some(problem) => {
            Err(Refusal::out_of_range(argument, problem, "Give an interval from 0 to 1,000 years."))
        }
        None => Ok(interval),
    }
}
