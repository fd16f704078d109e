//! What there is to say of a memory: how long it is good for, and what ends it before.

use std::time::Duration;

/// How long an entry is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// Until something ends it.
    Always,
    /// So long.
    For(Duration),
    /// As long as [`cost`](super::cost) says of the pages that the answer has cost; a cheap one is not kept at all.
    ByCost,
    /// As the owner says of each entry, within its own rule.
    AsGiven,
    /// The memory has a rule of its own that correctness needs; the owner says which.
    Exact,
}

/// What makes entries untrue, of whatever memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The queue's clock shows an earlier time than before.
    ClockBack,
    /// Positions may not be what they were: the tables or the sequence are others, or the sequence was set back.
    PositionsInDoubt,
    /// A call looks again after a sleep. The wake-up may be ahead of the message of the change that it is for.
    LookAgain,
}

/// The rule of a memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// What `taskq._session()` calls it.
    pub(crate) name: &'static str,
    /// For how long it is believed.
    pub(crate) lasts: Lasts,
    /// What ends all of it.
    pub(crate) ends_with: &'static [Event],
    /// The owner gives a version with each use, and all of it ends where that is another one.
    pub(crate) by_version: bool,
    /// A transaction that has an id remembers nothing here ([`learn`](super::Memory::learn)): what it has seen of its own changes, a
    /// savepoint may undo.
    pub(crate) of_committed: bool,
    /// How many entries there are at most in a memory by keys. Where there would be more, those go that are not good any more,
    /// else all.
    pub(crate) most: usize,
}

impl Rule {
    /// That of what is good until something ends it.
    pub(super) const fn new(name: &'static str) -> Rule {
        let (lasts, ends_with) = (Lasts::Always, &[]);
        Rule { name, lasts, ends_with, by_version: false, of_committed: false, most: usize::MAX }
    }
}
