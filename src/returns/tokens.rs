//! Performance tokens as callers give them.

use std::collections::HashMap;

use pgrx::datum::Uuid;

use crate::store::numbers;
use crate::token::Token;

/// Those of the pairs, by their place, whose token was granted for the task that has this id now. Whether
/// it is the last one granted is for the `run` row to say.
pub(crate) fn valid(pairs: &[(Option<String>, Option<Uuid>)]) -> HashMap<usize, Token> {
    let ids: Vec<&str> = pairs.iter().filter_map(|(id, _)| id.as_deref()).collect();
    let numbers = numbers::by_id(&ids);
    pairs
        .iter()
        .enumerate()
        .filter_map(|(i, (id, token))| {
            let token = Token::from_uuid(token.as_ref()?)?;
            (numbers.get(id.as_deref()?) == Some(&token.task_no) && token.nonce != 0).then_some((i, token))
        })
        .collect()
}
