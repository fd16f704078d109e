//! A task that is to be inserted, checked.

use pgrx::datum::Interval;

use super::backoff::Backoff;
use super::checks::{INTERVAL_HINT, check_metadata_length, check_value, interval_problem, name_problem};
use super::kind::Element;
use super::shape::Problem;
use super::unique::Unique;
use crate::error::{MAX_NAME, Result, shortened};
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::state::Condition;

/// How many bytes a merge key may have together with its action and group: what an index entry can hold.
const MAX_MERGE_KEY: usize = 2600;

/// A task to insert.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskSpec {
    /// The id that the caller gives it; `None`: the call makes one up. It moves on to `insert::NewTask::id`.
    pub(crate) id: Option<String>,
    /// The name of its action.
    pub(crate) action: String,
    /// Its parameters, as text.
    pub(crate) body: Option<String>,
    /// Higher ones are granted first; 0 if nothing is said.
    pub(crate) priority: i32,
    /// How many tries it has; `None`: what its action says, else the setting.
    pub(crate) max_tries: Option<i32>,
    /// The lease of its grants where the claim gives none; `None`: what its action says, else the setting.
    pub(crate) lease: Option<Interval>,
    /// It is not granted before this time; `None`: from now on.
    pub(crate) not_before: Option<Time>,
    /// It aborts then, if it has neither been granted nor ended by then.
    pub(crate) expires_at: Option<Time>,
    /// The longest that a try of it lasts.
    pub(crate) max_run_time: Option<Interval>,
    /// The tasks that it waits for.
    pub(crate) depends_on: Vec<Reference>,
    /// The tasks that are to wait for it.
    pub(crate) to_signal_after: Vec<Reference>,
    /// How many of its dependencies it needs; `None`: all.
    pub(crate) num_required: Option<i32>,
    /// The queue completes it itself, once nothing blocks it and its time has come.
    pub(crate) spontaneous: bool,
    /// It is completed from outside.
    pub(crate) signal: bool,
    /// Its end is announced by NOTIFY.
    pub(crate) post_result: bool,
    /// The group (batch) that it belongs to.
    pub(crate) group: Option<String>,
    /// How long it is kept once it has completed.
    pub(crate) retention: Option<Interval>,
    /// How long it is kept once it has aborted.
    pub(crate) retention_aborted: Option<Interval>,
    /// A JSON object of the inserter's own, which the worker gets with the task.
    pub(crate) metadata: Option<JsonText>,
    /// Delays between its tries, as [`Backoff`] reads them; `None`: those of its action, else the setting.
    pub(crate) backoff: Option<JsonText>,
    /// The workgroup that can hold it back.
    pub(crate) workgroup: Option<String>,
    /// Of the tasks of one action and group with this key one runs at a time, for all that are ready when it is granted.
    pub(crate) merge_key: Option<String>,
    /// It survives a reset of its group.
    pub(crate) seed: bool,
    /// The unique key that it is to hold, and what happens if another task holds it.
    pub(crate) unique: Option<Box<Unique>>,
}

/// How much a task waits for.
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
    /// The id of that task.
    pub(crate) id: String,
    /// How the one that is waited for must end.
    pub(crate) condition: Condition,
    /// No caller has named it: the dependency follows from another one, a unique key or the overlap of a schedule's runs.
    pub(crate) follows: bool,
}

impl Reference {
    /// That of a caller.
    pub(crate) fn named(id: String, condition: Condition) -> Self {
        Reference { id, condition, follows: false }
    }

    /// One that no caller has named.
    pub(crate) fn following(id: String, condition: Condition) -> Self {
        Reference { id, condition, follows: true }
    }
}

impl TaskSpec {
    /// How much it waits for.
    pub(crate) fn wants(&self) -> Wants {
        Wants { num_required: self.num_required, signal: self.signal }
    }

    /// Whether a grant has to ask more than its action.
    pub(crate) fn is_gated(&self) -> bool {
        self.group.is_some() || self.workgroup.is_some() || self.merge_key.is_some()
    }

    /// Checks what the types do not say; `n` is the element's place in the call, counted from 1, if it has one.
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
        check_sizes(n, self.id.as_deref(), self.body.as_deref(), self.metadata.as_ref())?;
        if let Some(problem) = self.problem_of_its_key().or_else(|| self.problem_of_its_numbers()) {
            return refuse(problem);
        }
        for (key, interval) in [
            ("lease", self.lease),
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
        let named = || self.depends_on.iter().chain(&self.to_signal_after).map(|r| r.id.len());
        if let Some(len) = named().find(|len| !(1..=MAX_NAME).contains(len)) {
            let what = format!("a dependency has an id of {len} bytes");
            return refuse(Problem::new(
                what,
                "Name a task, by an id of 1 to 1,000 bytes, or leave the entry out.",
            ));
        }
        Ok(self)
    }

    /// What is wrong with the length of its merge key, if anything.
    fn problem_of_its_key(&self) -> Option<Problem> {
        let key = self.merge_key.as_ref()?;
        let all = key.len() + self.action.len() + self.group.as_ref().map_or(0, String::len);
        (all > MAX_MERGE_KEY).then(|| {
            let what = format!("key \"merge_key\", the action and the group have {all} bytes, ");
            let what = format!("{what}{MAX_MERGE_KEY} are allowed");
            Problem::new(what, "Give a shorter key, such as a digest of a long one.")
        })
    }

    /// What is wrong with its numbers, and with what does not go together, if anything.
    fn problem_of_its_numbers(&self) -> Option<Problem> {
        if self.max_tries.is_some_and(|tries| tries < 1) {
            let hint = "Give an integer from 1 up, or leave it out for what is set for the action.";
            return Some(Problem::new("key \"max_tries\" is less than 1", hint));
        }
        if self.num_required.is_some_and(|number| number < 1) {
            let hint =
                "Give a number from 1 to that of its dependencies, or leave it out: then it needs all.";
            return Some(Problem::new("key \"num_required\" is less than 1", hint));
        }
        let given = [("spontaneous", self.spontaneous), ("num_required", self.num_required.is_some())];
        let (key, _) = given.into_iter().find(|(_, given)| self.signal && *given)?;
        let hint = "A signal is completed from outside, whatever has become of its dependencies: leave one of the two out.";
        Some(Problem::new(format!("both \"signal\" and \"{key}\" are given"), hint))
    }
}

/// Checks how large the body and the metadata of element `n` of a call are, or of the one that there is.
pub(crate) fn check_sizes(
    n: Option<usize>,
    id: Option<&str>,
    body: Option<&str>,
    metadata: Option<&JsonText>,
) -> Result<()> {
    let of = |key: &str| match (id, n) {
        (Some(id), _) => format!("the {key} of task \"{}\"", shortened(id)),
        (None, Some(n)) => format!("the {key} of element {n} of the call"),
        (None, None) => format!("the {key} of the task"),
    };
    check_value(|| of("body"), body.map_or(0, str::len))?;
    check_metadata_length(|| of("metadata"), metadata.map_or(0, |metadata| metadata.0.len()))
}

/// Checks the id of element `n` of a call, or of the one that there is.
pub(crate) fn check_id(n: Option<usize>, id: Option<&str>) -> Result<()> {
    match id.and_then(|id| name_problem("id", id)) {
        Some(problem) => Err(Element::Task.malformed(n, id, &problem)),
        None => Ok(()),
    }
}
