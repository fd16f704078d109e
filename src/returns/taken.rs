//! Performances that are returned, and their rows.

use std::collections::HashMap;

use crate::number::TaskNo;
use crate::store::live::{self, Live, Place};
use crate::store::run;
use crate::token::Token;

/// What became of an entry: its place in the call, and the code.
pub(super) type Code = (usize, &'static str);

/// A performance that is returned: one that the call names by an id and a token that belong together.
pub(super) struct Returned<T> {
    /// Its place in the call.
    pub(super) at: usize,
    /// The token with which it is returned; whether it is the last one granted, the row says.
    pub(super) token: Token,
    /// What the return says of its end.
    pub(super) how: T,
}

/// Rows of performances that have ended.
pub(super) struct Taken(HashMap<TaskNo, Live>);

/// Removes the rows of performances that end now.
pub(super) fn take<T>(returned: &[Returned<T>]) -> Taken {
    let rows = run::remove(returned.iter().map(|one| one.token.pair()).collect());
    live::let_go(rows.iter());
    Taken(rows.into_iter().map(|live| (live.task_no, live)).collect())
}

impl Taken {
    /// The row of a performance; `None` if its token was not good any more.
    pub(super) fn of<T>(&self, one: &Returned<T>) -> Option<&Live> {
        let its = Place::Run { nonce: one.token.nonce };
        self.0.get(&one.token.task_no).filter(|live| live.place == its)
    }
}
