//! What a call asks of limits.

use super::limit::Limit;

/// How many slots of a limit a call wants.
pub(crate) struct Ask {
    /// What the limit is for.
    pub(crate) limit: Limit,
    /// The limit.
    pub(crate) most: i32,
    /// How many free slots the call wants to lock.
    pub(crate) wanted: i32,
}

/// Columns of several [`Ask`]s, for `unnest`.
pub(super) fn columns(asks: &[&Ask]) -> (Vec<String>, Vec<String>, Vec<i32>, Vec<i32>) {
    (
        asks.iter().map(|a| a.limit.group.clone()).collect(),
        asks.iter().map(|a| a.limit.action.clone()).collect(),
        asks.iter().map(|a| a.most).collect(),
        asks.iter().map(|a| a.wanted).collect(),
    )
}
