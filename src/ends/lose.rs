//! Noting which actors lose tasks.

use std::collections::BTreeSet;

use super::{actors, at_end};
use crate::pg::latch;

/// These actors hold tasks no more that they held; what a savepoint undoes they still hold.
pub(crate) fn lose<'a>(actor_ids: impl Iterator<Item = &'a str>) {
    let actor_ids: BTreeSet<&str> = actor_ids.collect();
    if actor_ids.is_empty() {
        return;
    }
    at_end::listen();
    actors::note(latch::nest_level(), actor_ids);
}
