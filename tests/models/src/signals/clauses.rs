//! The clauses of the protocol.

/// What the protocol consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// A counter that is busy is passed over, and a signal left for it (`signal::apply`).
    PassOverBusy,
    /// A transaction that has touched a counter looks before it commits (`commit::before_commit`).
    LookBeforeCommit,
    /// It has a sign before it looks (`Steps::next`).
    SignBeforeLook,
    /// So does one that has only left a signal.
    SignOfSignal,
    /// The holder of the counter has another sign than the others (`commit::mode`).
    SignOfHolder,
    /// A transaction that commits with everything counted has the sign to itself (case 2).
    OnlyOne,
    /// It counts once more when it has.
    CountAmongOthersEnds,
    /// A transaction that leaves the rest to the holder of the counter has asked whether the holder is past its look
    /// (case 3).
    AskForHolder,
    /// And it has asked before it tried the counter.
    AskBeforeTrying,
    /// The look sees signals that are not committed (`unsent::look`).
    DirtySignals,
    /// And the lower version of a counter that another transaction is changing.
    LowestVersion,
    /// Signs are freed when the commit is visible.
    SignsOutliveCommit,
    /// A transaction that naps has no sign.
    NoSignWhileWaiting,
    /// A transaction that locks a counter looks, too, whatever the lock is for (`locks::live`,
    /// `fold::try_lock_and_count`).
    EachLockLooks,
    /// A counter is noted for the look as soon as it is counted down, not after all others (`blocked::change`).
    NotedAtOnce,
    /// A rollback of a transaction that had touched a counter wakes a session to count (`ends::touched`).
    RollbackWakes,
    /// A transaction that has left a signal to the holder of the counter wakes a session, too, once its commit is
    /// visible. The holder may have been rolled back meanwhile, and the session that this has woken has not seen the
    /// signal (`Steps::leaves`).
    LeavingWakes,
    /// The counter is locked first, and its signals are taken with a newer snapshot (`fold::try_lock_and_count`).
    LockBeforeTake,
    /// The look reads signals before counters.
    SignalsBeforeCounters,
    /// Signals that are just being removed do not count as sent; they are in the version of the counter that the
    /// remover has made.
    DoomedAreNotSent,
    /// What there is to count is counted first (`Steps::count`). Whether its holder is past the look is asked after that.
    CountFirst,
}

/// Those that are needed, each by itself.
pub const NEEDED: [Clause; 17] = [
    Clause::PassOverBusy,
    Clause::LookBeforeCommit,
    Clause::SignBeforeLook,
    Clause::SignOfSignal,
    Clause::SignOfHolder,
    Clause::OnlyOne,
    Clause::CountAmongOthersEnds,
    Clause::AskForHolder,
    Clause::AskBeforeTrying,
    Clause::DirtySignals,
    Clause::LowestVersion,
    Clause::SignsOutliveCommit,
    Clause::NoSignWhileWaiting,
    Clause::EachLockLooks,
    Clause::NotedAtOnce,
    Clause::RollbackWakes,
    Clause::LeavingWakes,
];

/// Those that can go, each by itself, and nothing is lost: the transaction that counts looks once more after that,
/// later than all those that may have been misled by what it was just doing, and counts what the first attempt has
/// missed. They spare that second round, and the proof does not need to speak of it.
pub const SPARED: [Clause; 4] =
    [Clause::LockBeforeTake, Clause::SignalsBeforeCounters, Clause::DoomedAreNotSent, Clause::CountFirst];
