//! Performance tokens as callers give them.

use std::collections::HashMap;

use pgrx::datum::Uuid;

use crate::pg::table::look;
use crate::store::task;
use crate::token::Token;

/// Those of the pairs, by their place, whose token was granted for the task that has this id now. Whether
/// it is the last one granted is for the `run` row to say.
pub(crate) fn valid(pairs: &[(Option<String>, Option<Uuid>)]) -> HashMap<usize, Token> {
    let tokens: Vec<(usize, &str, Token)> = pairs
        .iter()
        .enumerate()
        .filter_map(|(i, (id, token))| Some((i, id.as_deref()?, Token::from_uuid(token.as_ref()?)?)))
        .filter(|(.., token)| token.nonce != 0)
        .collect();
    if tokens.is_empty() {
        return HashMap::new();
    }
    let are_theirs =
        look(|look| task::have_ids(look, tokens.iter().map(|(_, id, token)| (token.task_no, *id))));
    tokens.iter().zip(are_theirs).filter(|(_, its)| *its).map(|((i, _, token), _)| (*i, *token)).collect()
}
