//! How far a walk through the entries in no lane looks first.

use std::cell::Cell;

use crate::number::Position;
use crate::pg::table::Key;

/// How many positions beyond twice the number of entries that it wants a walk looks at first, where the last walk found its first
/// entry at once.
const NEAR: usize = 8;

/// A walk that came from further off than this is taken for one that knew nothing of where to begin.
const FAR: usize = 4096;

thread_local! {
    /// How far behind its beginning the last walk of this backend came upon its first entry.
    static REACH: Cell<usize> = const { Cell::new(NEAR) };
}

/// A walk that began there has come upon its first entry here.
pub(crate) fn note_reach(start: Position, first: Position) {
    let reach = usize::try_from(first.0.saturating_sub(start.0)).unwrap_or(0);
    REACH.set(if reach <= FAR { reach } else { NEAR });
}

/// The keys of the walks through the entries in no lane of one action and priority, from a position on, in their order:
/// what is near, then the rest.
///
/// A scan that begins looks at every entry of its page that its keys allow, some hundreds, and most scans end with one of
/// the first. Where the first scan does not suffice, another descent is needed. So it goes twice the way that the last one had to,
/// unless that was further than [`FAR`], and a little beyond: entries that are in progress, and the positions of other actions,
/// lie between.
pub(crate) fn in_order(action_no: i32, priority: i32, start: Position, wanted: usize) -> [[Key; 4]; 2] {
    let near = start.plus(NEAR + 2 * REACH.get() + 2 * wanted);
    [(start, near), (near.next(), Position::END)].map(|(first, last)| {
        [Key::eq(1, action_no), Key::eq(2, priority), Key::at_least(3, first), Key::at_most(3, last)]
    })
}
