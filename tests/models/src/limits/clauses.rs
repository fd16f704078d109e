//! The clauses of the protocol.

/// What the protocol of slots consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A slot is locked before it is taken, and passed over by others (`slot::FREE`).
    LockSlot,
    /// Who makes slots has a lock for that (`slot::lockable`).
    LockForMaking,
    /// He counts them with a snapshot that is newer than the lock (`slot::MAKE`).
    CountUnderLock,
    /// He has the lock until his commit is seen.
    LockOutlivesCommit,
    /// A slot is freed by the transaction that ends the performance (`slot::release`).
    FreedWithTheEnd,
    /// Who has made slots wakes somebody with his commit (`Allowances::settle`).
    MadeWakes,
    /// So does who has locked one and not used it.
    UnusedWakes,
    /// So does who frees one.
    FreedWakes,
    /// So does a rollback.
    RollbackWakes,
    /// A waiter who is woken and leaves with a task hands on.
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
