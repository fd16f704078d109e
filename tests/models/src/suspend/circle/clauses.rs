//! The clauses of the protocol.

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A suspended task that others run after is checked for cycles.
    Check,
    /// The check is done under the guard.
    Guard,
    /// An insertion that links stored tasks in both directions takes the guard.
    GuardOfInsertion,
    /// A suspension holds what its task is to wait for.
    HoldAwaited,
    /// An insertion holds what its task runs after.
    InsertionHolds,
    /// The row is removed before the call asks whether anything runs after the task.
    RemoveBeforeAsking,
    /// A call that would wait for a row with others locked gives all up.
    GiveUp,
}

/// Those that are needed, each by itself.
pub const NEEDED: [Clause; 7] = [
    Clause::Check,
    Clause::Guard,
    Clause::GuardOfInsertion,
    Clause::HoldAwaited,
    Clause::InsertionHolds,
    Clause::RemoveBeforeAsking,
    Clause::GiveUp,
];
