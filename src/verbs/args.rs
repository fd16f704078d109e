//! Arguments that several verbs read alike.

use crate::error::{Refusal, Result, required};
use crate::input::check_length;

/// The pairs of two arrays, which must be equally long.
pub(super) fn pairs<A, B>(ids: Vec<A>, tokens: Vec<B>) -> Result<Vec<(A, B)>> {
    if ids.len() != tokens.len() {
        return Err(Refusal::argument(
            "arguments \"task_ids\" and \"tokens\" differ in length",
            &format!("\"task_ids\" has {} elements, \"tokens\" {}.", ids.len(), tokens.len()),
            "Give one token for each task id.",
        ));
    }
    Ok(ids.into_iter().zip(tokens).collect())
}

/// The names of actions, none of which may be NULL.
pub(super) fn check_actions(actions: Vec<Option<String>>) -> Result<Vec<String>> {
    let name = |action| {
        let action: String = required("actions", action)?;
        check_length("actions", &action)?;
        Ok(action)
    };
    actions.into_iter().map(name).collect()
}
