//! The clauses of the protocol.

/// What the protocol of slots consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A slot is locked before it is taken, and passed over by others (`slot::FREE`).
    LockSlot,
    /// A claim that makes slots has a lock for that (`slot::lockable`).
    LockForMaking,
    /// It counts them with a snapshot that is newer than the lock (`slot::MAKE`).
    CountUnderLock,
    /// It has the lock until its commit is seen.
    LockOutlivesCommit,
    /// A slot is freed by the transaction that ends the performance (`slot::release`).
    FreedWithTheEnd,
    /// The commit of a claim that has made slots wakes a waiting call (`Reservations::settle`).
    MadeWakes,
    /// So does that of a claim that has locked a slot and not used it.
    UnusedWakes,
    /// So does that of a return that frees one.
    FreedWakes,
    /// So does the rollback of a grant.
    RollbackWakes,
    /// A worker that leaves hands on a wake-up that it has not used (`wake::hand_on`).
    HandOn,
}

/// Those that are needed, each by itself.
pub const NEEDED: [Clause; 10] = [
    Clause::LockSlot,
    Clause::LockForMaking,
    Clause::CountUnderLock,
    Clause::LockOutlivesCommit,
    Clause::FreedWithTheEnd,
    Clause::MadeWakes,
    Clause::UnusedWakes,
    Clause::FreedWakes,
    Clause::RollbackWakes,
    Clause::HandOn,
];
