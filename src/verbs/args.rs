//! Arguments that several verbs read alike.

use crate::error::{Refusal, Result};

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
