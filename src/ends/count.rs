//! How often something may have been undone.

use std::cell::Cell;

thread_local! {
    /// How many ends there were by which something may have been undone, or after which it is for others as well.
    static ENDS: Cell<u64> = const { Cell::new(0) };
}

/// A number that stays as it is for as long as everything that the transaction has done is its own, and not undone: until it
/// ends, or a savepoint of it is rolled back behind which something was changed.
/// Counted from the first [`listen`](super::at_end::listen) on.
pub(crate) fn ends() -> u64 {
    ENDS.get()
}

/// Another end.
pub(super) fn one_more() {
    ENDS.set(ENDS.get() + 1);
}
