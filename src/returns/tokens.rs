//! Performance tokens as callers give them.

use std::collections::HashMap;

use pgrx::datum::Uuid;

use crate::error::Refusal;
use crate::insert::in_the_way;
use crate::number::TaskNo;
use crate::pg::table::look;
use crate::rights::Doing;
use crate::store::{positions, task};
use crate::token::{Nonce, Token};

/// Whether the token is of another shard than `this` one: its task is not here, whatever the id.
pub(crate) fn is_foreign(token: Option<&Uuid>, this: i32) -> bool {
    token.and_then(Token::from_uuid).is_some_and(|token| token.shard() != this)
}

/// Why a token was refused that is not the last one granted.
pub(crate) fn refusal(id: &str, token: &Uuid) -> Refusal {
    match (Token::from_uuid(token).map(Token::shard), positions::shard()) {
        (Some(its), this) if its != this => Refusal::other_shard(id, its, this),
        _ => Refusal::stale_token(id, in_the_way::told(id, Doing::Work).as_deref()),
    }
}

/// Those of the pairs, by their place, whose token is for the task that has this id now. Whether it is the last one
/// granted is for the `run` row to say.
pub(crate) fn valid(pairs: &[(Option<String>, Option<Uuid>)]) -> HashMap<usize, Token> {
    let tokens: Vec<(usize, &str, Token)> = pairs
        .iter()
        .enumerate()
        .filter_map(|(i, (id, token))| Some((i, id.as_deref()?, Token::from_uuid(token.as_ref()?)?)))
        .filter(|(.., token)| token.nonce != Nonce::NONE)
        .collect();
    if tokens.is_empty() {
        return HashMap::new();
    }
    let named: Vec<(TaskNo, &str)> = tokens.iter().map(|(_, id, token)| (token.task_no, *id)).collect();
    let are_theirs = look(|look| task::have_ids(look, &named));
    tokens.iter().zip(are_theirs).filter(|(_, its)| *its).map(|((i, _, token), _)| (*i, *token)).collect()
}
