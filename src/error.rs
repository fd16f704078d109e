//! The refusals of the queue: SQLSTATE, message, the facts and what to do about it.
//!
//! Refusals for tasks and other things of the queue that are not there, or not in the state that is wanted, are in [`tasks`]; the others in
//! [`arguments`] and [`rights`]. Codes are there, except a few that `pg` and functions in SQL raise themselves. Messages begin in lower
//! case and have no full stop, details and hints are sentences, as in Postgres' own style.

mod arguments;
mod rights;
mod tasks;
mod text;

use crate::pg::throw::throw;
pub(crate) use text::{sentence, shortened};

/// What a call is refused with. Raised as an error it undoes what the call has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The code that the caller gets: five characters, `TQ001` to `TQ007` or one of Postgres' own.
    pub(crate) sqlstate: &'static str,
    message: String,
    detail: String,
    hint: String,
}

/// What verbs return, and other functions that may refuse.
pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// `TQ001`, also where it is a result and not an error.
pub(crate) const STALE_TOKEN: &str = "TQ001";
/// `TQ003`, also where it is a result and not an error.
pub(crate) const NO_SUCH_TASK: &str = "TQ003";

/// The longest id, name of an action, group, workgroup or step, merge key and unique key, in bytes. The limit keeps each well inside
/// what an index entry can hold.
pub(crate) const MAX_NAME: usize = 1000;

/// `54000`, also where it is a result and not an error.
pub(crate) const TOO_LARGE: &str = "54000";

/// Unwraps a verb's result, raising its refusal as a Postgres error.
pub(crate) fn or_throw<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(refusal) => throw(refusal.sqlstate, &refusal.message, &refusal.detail, &refusal.hint),
    }
}

impl Refusal {
    fn new(sqlstate: &'static str, message: String, detail: String, hint: &str) -> Self {
        Refusal { sqlstate, message, detail, hint: hint.to_owned() }
    }

    /// The same with the return, counted from 1, that it came from.
    pub(crate) fn of_return(mut self, n: usize, id: Option<&str>) -> Self {
        let id = id.map(|id| format!(" (\"{}\")", shortened(id))).unwrap_or_default();
        self.detail.push_str(&format!(" It belongs to return {n}{id} of the call."));
        self
    }

    /// Message and detail in one line, where a refusal is noted and not raised.
    pub(crate) fn summary(&self) -> String {
        format!("{} ({})", self.message, self.detail)
    }

    /// The same with this hint.
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        hint.clone_into(&mut self.hint);
        self
    }
}

/// An argument that may not be NULL.
pub(crate) fn required<T>(argument: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Refusal::null_argument(argument))
}
