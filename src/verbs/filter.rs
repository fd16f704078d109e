//! Which tasks a call is about that does not name them all: the filters of `retry_tasks`, `cancel_tasks` and
//! `delete_tasks`.

use pgrx::datum::TimestampWithTimeZone;

use crate::error::{Refusal, Result, required};
use crate::pg::clock::Time;
use crate::state::Cause;

/// What is `None` does not filter.
#[derive(Default)]
pub(super) struct Filter<'a> {
    pub(super) task_ids: Option<Vec<Option<String>>>,
    pub(super) actions: Option<Vec<Option<String>>>,
    pub(super) groups: Option<Vec<Option<String>>>,
    pub(super) status_like: Option<&'a str>,
    /// As `settled.cause` stores them.
    pub(super) causes: Option<Vec<i8>>,
    pub(super) since: Option<Time>,
    pub(super) until: Option<Time>,
    pub(super) max_tasks: Option<i32>,
}

impl Filter<'_> {
    /// Whether it asks for more of a task than its id.
    pub(super) fn looks_at_tasks(&self) -> bool {
        let Filter { task_ids: _, actions, groups, status_like, causes, since, until, max_tasks: _ } = self;
        actions.is_some()
            || groups.is_some()
            || status_like.is_some()
            || causes.is_some()
            || since.is_some()
            || until.is_some()
    }

    /// The ids, if there is nothing else to go by. Without anything at all the call would be about every task: that is
    /// refused.
    pub(super) fn only_ids(&self) -> Result<Option<Vec<&str>>> {
        if self.status_like.is_some_and(ends_in_escape) {
            let hint = "A backslash takes the character after it as it is; write two for one.";
            let what = "a pattern that ends with a single backslash";
            return Err(Refusal::out_of_range("status_like", what, hint));
        }
        match &self.task_ids {
            None if !self.looks_at_tasks() => Err(Refusal::nothing_asked_for("task_ids")),
            Some(ids) if !self.looks_at_tasks() && self.max_tasks.is_none() => {
                Ok(Some(ids.iter().flatten().map(String::as_str).collect()))
            }
            _ => Ok(None),
        }
    }
}

/// Whether a pattern of LIKE ends with an escape character that has nothing to escape.
fn ends_in_escape(pattern: &str) -> bool {
    pattern.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// How many tasks at most.
pub(super) fn check_max_tasks(max_tasks: Option<i32>) -> Result<Option<i32>> {
    match max_tasks {
        Some(max) if max < 0 => {
            Err(Refusal::out_of_range("max_tasks", &max.to_string(), "Ask for 0 tasks or more."))
        }
        other => Ok(other),
    }
}

/// A time that is an argument.
pub(super) fn time(time: Option<TimestampWithTimeZone>) -> Option<Time> {
    time.map(|t| Time(t.into()))
}

/// Causes of aborts, by their names.
pub(super) fn stored_causes(names: Vec<Option<String>>) -> Result<Vec<i8>> {
    names
        .into_iter()
        .map(|name| {
            let name = required("causes", name)?;
            match Cause::from_name(&name).filter(|cause| Cause::of_aborts().any(|known| known == *cause)) {
                Some(cause) => Ok(cause.stored()),
                None => {
                    let names: Vec<&str> = Cause::of_aborts().map(Cause::name).collect();
                    Err(Refusal::no_such_word("causes", &name, &format!("Use one of: {}.", names.join(", "))))
                }
            }
        })
        .collect()
}
