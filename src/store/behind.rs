//! Walks along an index that begin behind what is decided.
//!
//! Rows that come and go leave their index entries behind, at least while a snapshot is held that may see them. Where new
//! ones always come at the end, since their place is a position of the queue's sequence, a backend can remember for each
//! range of the index before which position there is nothing, now or later, and begin there. The rule, and why it is
//! right, are those of [`decided`](super::decided): a mark goes up to the first row that a look has seen, but not
//! beyond what was decided when it looked.
//!
//! Two things have to hold of the rows. A transaction that gives one its position has an id by then. And one that is
//! found to be taken, by a transaction that has committed, does not become free at its old position.

use std::collections::HashMap;
use std::hash::Hash;

use crate::memory::{Now, Remembers, Rule, Shown};
use crate::number::Position;
use crate::store::decided::{Decided, Look};

/// Of how many ranges a mark is kept at most.
const MOST_RANGES: usize = 1_024;

/// Where the walks along some ranges of an index begin.
#[derive(Debug)]
pub(crate) struct Behind<Range> {
    decided: Decided,
    starts: HashMap<Range, Position>,
}

impl<Range: 'static> Remembers for Behind<Range> {
    fn new(_: &'static Rule) -> Self {
        Behind { decided: Decided::default(), starts: HashMap::new() }
    }

    fn forget(&mut self) {
        (self.decided, self.starts) = (Decided::default(), HashMap::new());
    }

    fn shown(&self, _: Now) -> Shown {
        self.decided.shown(self.starts.len())
    }
}

impl<Range: Eq + Hash> Behind<Range> {
    /// Before this position nothing is known to be in the range.
    pub(crate) fn start(&self, range: &Range) -> Position {
        self.starts.get(range).copied().unwrap_or(Position::BEGINNING)
    }

    /// Moves marks up. `firsts` are the first positions, from the marks on, at which the look has seen something in its
    /// snapshot, locked or not. `had_id`: its transaction had an id before it looked.
    pub(crate) fn advance(
        &mut self,
        firsts: impl ExactSizeIterator<Item = (Range, Option<Position>)>,
        look: &Look,
        had_id: bool,
    ) {
        if !self.decided.still_holds(look) {
            self.starts.clear();
            return;
        }
        let Some(bound) = self.decided.bound(look, had_id) else { return };
        if self.starts.len() + firsts.len() > MOST_RANGES {
            self.starts.clear();
        }
        for (range, first) in firsts.take(MOST_RANGES) {
            let start = self.starts.entry(range).or_default();
            *start = (*start).max(first.map_or(bound.next(), |first| first.min(bound.next())));
        }
    }
}
