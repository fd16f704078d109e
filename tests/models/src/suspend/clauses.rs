//! The clauses of the protocol.

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// What a task is to wait for is held FOR KEY SHARE while the suspension is not committed (`suspend::link`).
    KeyShare,
    /// A transaction that ends a task reads the edges after it has removed the live row (`dependency::waiting_for`).
    EdgesAfterRemoval,
    /// An end counts for the wait that its edge names (`blocked::change`).
    CompareInCount,
    /// So does a signal (`fold::try_lock_and_count`, by way of `blocked::change`).
    CompareInFold,
    /// Each wait has a number of its own (`positions::new_wait`).
    NewNumber,
    /// A time-out locks the counter, and passes over one that is locked (`suspended::OVERDUE`).
    LockOverdue,
    /// It counts the signals that are there (`suspended::free`).
    FoldBeforeDrop,
    /// It drops what is open (`signal::without_open`).
    DropAfterTimeOut,
    /// So does a task for which some of its dependencies suffice (`signal::go_on_without_open`).
    DropOfSome,
    /// What is kept as an edge has been counted: the snapshot in which the open edges are dropped shows no signal that is not.
    /// Where there is one it is taken with the drop, and counted (`dependency::drop_open`).
    OneSnapshot,
    /// A deletion has the tasks locked that wait for what goes before it locks their edges: what drops open edges passes over
    /// those that are locked (`remove::lock_dependents`).
    TaskBeforeEdges,
    /// A suspended task is freed once nothing is left that it waits for, also by a deletion, and also one for which some of its
    /// dependencies suffice (`recount::recounted`).
    SuspendedIsFreed,
    /// A counter that is worked out has what is left for it on top, as the same snapshot shows it (`recount::recounted`).
    RecountWithRows,
    /// A transaction that has touched the counter looks before it commits (`commit::before_commit`).
    LookBeforeCommit,
    /// A rollback of a transaction that has touched the counter wakes a call that looks (`ends::touched`).
    RollbackWakes,
}

/// Those that are needed, each by itself.
pub const NEEDED: [Clause; 15] = [
    Clause::KeyShare,
    Clause::EdgesAfterRemoval,
    Clause::CompareInCount,
    Clause::CompareInFold,
    Clause::NewNumber,
    Clause::LockOverdue,
    Clause::FoldBeforeDrop,
    Clause::DropAfterTimeOut,
    Clause::DropOfSome,
    Clause::OneSnapshot,
    Clause::TaskBeforeEdges,
    Clause::SuspendedIsFreed,
    Clause::RecountWithRows,
    Clause::LookBeforeCommit,
    Clause::RollbackWakes,
];
